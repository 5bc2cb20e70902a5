"""A server on stdio around one asyncio event loop, whose tools block it, or do not.

    loop.py [thread]

With "thread" its input is read by a thread of its own, as some SDKs do.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

executions = 0
background = set()  # tasks, which the loop alone does not keep


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


async def cpu(seconds, **_):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def cpu_with_progress(seconds, progress, **_):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await cpu(0.2)
        progress()
        await asyncio.sleep(0)


async def sleep(seconds, **_):
    await asyncio.sleep(seconds)


async def sleep_blocking(seconds, **_):
    time.sleep(seconds)


async def process(seconds, **_):
    child = await asyncio.create_subprocess_exec("sleep", str(seconds))
    await child.wait()


async def process_blocking(seconds, **_):
    subprocess.run(["sleep", str(seconds)], check=True, capture_output=True)


async def http(url, **_):
    at = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    writer.write(f"GET {at.path}?{at.query} HTTP/1.1\r\nHost: {at.netloc}\r\nConnection: close\r\n\r\n".encode())
    await reader.read()
    writer.close()


async def http_blocking(url, **_):
    urllib.request.urlopen(url).read()


async def http_blocking_with_timeout(url, **_):
    urllib.request.urlopen(url, timeout=60).read()


async def copy_blocking(seconds, **_):
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile(buffering=0) as file:
        while time.monotonic() < end:
            file.write(b"x" * 4096)
            time.sleep(0.1)


async def deadlock(**_):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


async def deadlock_in_thread(**_):
    await asyncio.to_thread(asyncio.run, deadlock())


async def never(**_):
    await asyncio.Event().wait()


async def exit(**_):
    os._exit(3)


async def close_stdout(seconds, **_):
    os.close(1)
    await asyncio.sleep(seconds)


async def collect_garbage(seconds, **_):
    live = [[i] for i in range(200_000)]
    end, longest = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        begin = time.monotonic()
        gc.collect()
        longest = max(longest, time.monotonic() - begin)
        await asyncio.sleep(0)
    return f"{len(live)} objects, longest pause {longest * 1000:.0f} ms"


tools = {f.__name__: f for f in (
    cpu, cpu_with_progress, sleep, sleep_blocking, process, process_blocking, http, http_blocking,
    http_blocking_with_timeout, copy_blocking, deadlock, deadlock_in_thread, never, exit, close_stdout, collect_garbage,
)}


async def call(message):
    global executions
    executions += 1
    params = message["params"]
    token = params.get("_meta", {}).get("progressToken")

    def progress():
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": time.monotonic()}})

    note = await tools[params["name"]](progress=progress, **params["arguments"]) or ""
    text = json.dumps({"executions": executions, "note": note})
    send({"id": message["id"], "result": {"content": [{"type": "text", "text": text}]}})


def handle(line):
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            send({"id": message["id"], "result": {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "loop", "version": "1"},
            }})
        case "ping":
            send({"id": message["id"], "result": {}})
        case "tools/call":
            task = asyncio.ensure_future(call(message))
            background.add(task)
            task.add_done_callback(background.discard)


async def lines():
    loop = asyncio.get_running_loop()
    queue = asyncio.StreamReader(limit=1 << 20)
    if sys.argv[1:] == ["thread"]:
        def read():
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(queue.feed_data, line)
            loop.call_soon_threadsafe(queue.feed_eof)
        threading.Thread(target=read, daemon=True).start()
    else:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(queue), sys.stdin)
    async for line in queue:
        handle(line)


asyncio.run(lines())
