"""The client of the Python SDK, of version 1 or 2: python_client.py http|sse|stdio URL-or-command…"""

import importlib.metadata
import json
import os
import sys
from contextlib import AsyncExitStack
from functools import partial

import anyio
import mcp
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

STEP_LIMIT = 15  # seconds, unless the plan says; a step that hangs ends early enough that its cell still reports it
CONNECT_LIMIT, CELL_LIMIT = 40, 55
ASKED_LIMIT = 10
CHECKS = ("list", "call", "progress", "elicitation", "cancel", "resources", "prompts")
VERSION = importlib.metadata.version("mcp")


def open_transport(kind, target):
    if kind == "http":
        return streamable_http_client(target[0])
    if kind == "sse":
        return sse_client(target[0])
    return stdio_client(StdioServerParameters(command=target[0], args=target[1:]))


def text_of(result, failed):
    text = "".join(getattr(part, "text", "") for part in result.content)
    if failed:
        raise RuntimeError(f"tool error: {text}")
    return text


class Gathering:
    """Where the clients of one step wait for each other: none answers before all
    are being asked, so that whatever mixes them up has its chance."""

    def __init__(self, clients):
        self.clients = clients

    def step(self):
        self.here, self.full = set(), anyio.Event()

    async def arrive(self, who):
        self.here.add(who)
        if len(self.here) == self.clients:
            self.full.set()
        with anyio.move_on_after(ASKED_LIMIT):
            await self.full.wait()
        if not self.full.is_set():
            raise RuntimeError("only one client was asked")


class PeerV1:
    """ClientSession, as programs of version 1 use it."""

    def __init__(self, answers, all_clients=None):
        self.answers, self.all_clients = answers, all_clients
        self.info = mcp.types.Implementation(name="interop-python", version=VERSION)

    async def connect(self, stack, transport):
        read, write = (await stack.enter_async_context(transport))[:2]
        session = mcp.ClientSession(
            read,
            write,
            elicitation_callback=self.fill_in,
            sampling_callback=self.say,
            client_info=self.info,
        )
        self.session = await stack.enter_async_context(session)
        result = await self.session.initialize()
        return result.protocolVersion, result.serverInfo.name

    def fields(self, params):
        return params.requestedSchema["properties"]

    async def fill_in(self, context, params):
        if self.all_clients:
            await self.all_clients.arrive(self)
        content = {name: self.answers[name] for name in self.fields(params) if name in self.answers}
        return mcp.types.ElicitResult(action="accept", content=content)

    async def say(self, context, params):
        if self.all_clients:
            await self.all_clients.arrive(self)
        content = mcp.types.TextContent(type="text", text=self.answers["model"])
        return mcp.types.CreateMessageResult(role="assistant", model="interop", content=content)

    async def call(self, name, arguments, progress=None):
        result = await self.session.call_tool(name, arguments, progress_callback=progress)
        return text_of(result, result.isError)

    async def cancel(self, scope):
        # This version has no way to cancel a call but this notification, and
        # tells nobody the id of the call; ids count up.
        cancelled = mcp.types.CancelledNotification(
            params=mcp.types.CancelledNotificationParams(requestId=self.session._request_id - 1)
        )
        await self.session.send_notification(mcp.types.ClientNotification(cancelled))
        scope.cancel()


class PeerV2(PeerV1):
    """Client, the way in of version 2, in its default mode."""

    async def connect(self, stack, transport):
        client = mcp.Client(
            transport, elicitation_callback=self.fill_in, sampling_callback=self.say, client_info=self.info
        )
        self.session = await stack.enter_async_context(client)
        return client.protocol_version, client.server_info.name

    def fields(self, params):
        return params.requested_schema["properties"]

    async def call(self, name, arguments, progress=None):
        result = await self.session.call_tool(name, arguments, progress_callback=progress)
        return text_of(result, result.is_error)

    async def cancel(self, scope):
        scope.cancel()


def contains(text, want):
    if want not in text:
        raise RuntimeError(f"got {text!r}, want {want!r} in it")


class Checks:
    """One method for each check of the plan."""

    def __init__(self, plan, peer, transport):
        self.plan, self.peer = plan, peer
        self.message = f"{plan['text']} {transport} {os.getpid()}"

    async def list(self):
        tools = (await self.peer.session.list_tools()).tools
        contains([tool.name for tool in tools], self.plan["echo"]["name"])

    async def call(self):
        contains(await self.peer.call(self.plan["echo"]["name"], {"message": self.message}), self.message)

    async def progress(self):
        tool, seen = self.plan["progress"], []

        async def note(progress, total, message):
            seen.append(progress)

        contains(await self.peer.call(tool["name"], tool["arguments"], note), tool["expect"])
        want = list(range(1, tool["count"] + 1))
        # The SDK hands notifications on beside the result: the last ones may come after it.
        with anyio.move_on_after(2):
            while seen != want:
                await anyio.sleep(0.05)
        if seen != want:
            raise RuntimeError(f"progress {seen}, want {want}")

    async def elicitation(self):
        tool = self.plan["elicit"]
        contains(await self.peer.call(tool["name"], tool["arguments"]), tool["expect"])

    async def cancel(self):
        tool, counter = self.plan["cancel"], self.plan["counter"]
        started, scope = anyio.Event(), anyio.CancelScope()

        async def note(progress, total, message):
            started.set()

        async def call():
            with scope:
                await self.peer.call(tool["name"], tool["arguments"], note)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await started.wait()
            await self.peer.cancel(scope)
        if not scope.cancelled_caught:
            raise RuntimeError("the cancelled call has a result")
        if not counter["name"]:
            return await self.call()
        count = ""
        with anyio.move_on_after(10):
            while count != counter["expect"]:
                await anyio.sleep(0.05)
                count = await self.peer.call(counter["name"], counter["arguments"])
        if count != counter["expect"]:
            raise RuntimeError(f"the server counts {count} cancelled calls")

    async def resources(self):
        resources = (await self.peer.session.list_resources()).resources
        contains([str(resource.uri) for resource in resources], self.plan["resource"])
        read = await self.peer.session.read_resource(self.plan["resource"])
        if not read.contents or not read.contents[0].text:
            raise RuntimeError(f"{self.plan['resource']} is empty")

    async def prompts(self):
        prompts = (await self.peer.session.list_prompts()).prompts
        contains([prompt.name for prompt in prompts], self.plan["prompt"])


class Questions:
    """One method for all the checks in which tools ask."""

    def __init__(self, plan, peers, gathering):
        self.tag, self.counter, self.peers, self.gathering = plan["tag"], plan["counter"], peers, gathering

    async def call(self, i, question):
        peer, tag = self.peers[i], {"tag": f"{self.tag}-{question['check']}-{i}"}
        contains(await peer.call(question["tool"], tag), question["expect"].format(**peer.answers))
        count = await peer.call(self.counter["name"], tag)
        if count != self.counter["expect"]:
            raise RuntimeError(f"client {i}: the server counts {count} executions")

    async def ask(self, question):
        self.gathering.step()
        async with anyio.create_task_group() as group:
            for i in range(len(self.peers)):
                group.start_soon(self.call, i, question)


def reason(err):
    """The innermost errors of what may be a group."""
    if isinstance(err, BaseExceptionGroup):
        return "; ".join(reason(one) for one in err.exceptions)
    return f"{type(err).__name__}: {err}"


async def run_checks(steps, limit, outcomes):
    for name, step in steps.items():
        try:
            with anyio.fail_after(limit):
                await step()
            outcomes[name] = "ok"
        except Exception as err:
            outcomes[name] = f"FAIL {reason(err)}"


def steps_of(plan, peers, transport):
    questions = plan.get("questions")
    if questions:
        asking = Questions(questions, peers, peers[0].all_clients)
        return {one["check"]: partial(asking.ask, one) for one in questions["asking"]}
    checks = Checks(plan, peers[0], transport)
    return {name: getattr(checks, name) for name in plan.get("only") or CHECKS}


async def main():
    transport, target = sys.argv[1], sys.argv[2:]
    plan = json.loads(os.environ["INTEROP_PLAN"])
    report = {"client": "Python SDK", "version": VERSION, "transport": transport}
    report.update(negotiated="", server="", checks={})
    make = PeerV2 if hasattr(mcp, "Client") else PeerV1
    if "questions" in plan:
        answers = plan["questions"]["answers"]
        gathering = Gathering(len(answers))
        peers = [make(one, gathering) for one in answers]
    else:
        peers = [make(plan["elicit"]["answer"])]
    steps = steps_of(plan, peers, transport)
    try:
        # Time limits nest around the stack: it opens task groups that outlive connect.
        with anyio.fail_after(CONNECT_LIMIT) as limit:
            async with AsyncExitStack() as stack:
                for peer in peers:
                    where = open_transport(transport, target)
                    report["negotiated"], report["server"] = await peer.connect(stack, where)
                limit.deadline = anyio.current_time() + CELL_LIMIT
                await run_checks(steps, plan.get("stepSeconds", STEP_LIMIT), report["checks"])
    except Exception as err:
        # Version 1 reads on while it closes, and trips over a message that comes then.
        if not (report["checks"].keys() >= steps.keys() and reason(err).startswith("BrokenResourceError")):
            report["error"] = reason(err)
    print(json.dumps(report, ensure_ascii=False), flush=True)
    return 1 if "error" in report or set(report["checks"].values()) - {"ok"} else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
