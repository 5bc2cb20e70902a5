"""A server on stdio without an event loop: one message after the other.

    plain.py answers|ignores|refuses

says what it does with a ping, when it gets to it.
"""

import json
import sys
import time

pings = sys.argv[1]
executions = 0


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def cpu(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


tools = {"cpu": cpu, "sleep": time.sleep}

for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            send({"id": message["id"], "result": {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "plain", "version": "1"},
            }})
        case "ping" if pings == "answers":
            send({"id": message["id"], "result": {}})
        case "ping" if pings == "refuses":
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
        case "tools/call":
            executions += 1
            tools[message["params"]["name"]](message["params"]["arguments"]["seconds"])
            text = json.dumps({"executions": executions, "note": ""})
            send({"id": message["id"], "result": {"content": [{"type": "text", "text": text}]}})
