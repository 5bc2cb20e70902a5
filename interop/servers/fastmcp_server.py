"""An MCP server of the Python SDK: FastMCP, or MCPServer as version 2 calls it.

fastmcp_server.py                            on stdio
fastmcp_server.py streamable-http|sse PORT   on the network
"""

import os
import sys

import anyio

try:
    from mcp.server.fastmcp import Context, FastMCP as Server
    import asks_by_request as asks
except ModuleNotFoundError:
    from mcp.server.mcpserver import Context, MCPServer as Server
    import asks_by_result as asks

server = Server("interop-python")
# All processes of a server write down here what befell which call: the calls
# of one client may go to several.
LEDGER = os.environ.get("INTEROP_LEDGER", os.devnull)


def write_down(what, tag):
    with open(LEDGER, "a") as ledger:
        ledger.write(f"{what} {tag}\n")


def count_of(what, tag):
    with open(LEDGER) as ledger:
        return str(ledger.readlines().count(f"{what} {tag}\n"))


@server.tool()
async def echo(message: str) -> str:
    """Returns the message."""
    return message


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Sends one progress notification a step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.02)
    return f"counted to {steps}"


asks.add_to(server, lambda tag: write_down("executed", tag))


@server.tool()
async def executed(tag: str) -> str:
    """Returns how often a call with the tag was executed."""
    return count_of("executed", tag)


@server.tool()
async def wait(seconds: float, tag: str, ctx: Context) -> str:
    """Says with one progress notification that it runs, then waits."""
    try:
        await ctx.report_progress(1, 2, "waiting")
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        write_down("cancelled", tag)
        raise
    return "waited"


@server.tool()
async def cancelled(tag: str) -> str:
    """Returns how many calls of wait with the tag were cancelled."""
    return count_of("cancelled", tag)


@server.resource("memo://greeting")
async def greeting() -> str:
    """A text to read."""
    return "hello from a resource"


@server.prompt()
async def greet(name: str) -> str:
    """A prompt to list."""
    return f"Greet {name}."


def main(transport="stdio", port=None):
    if port is None:
        server.run(transport=transport)
    elif hasattr(server.settings, "port"):
        server.settings.port = int(port)
        server.run(transport=transport)
    else:
        server.run(transport=transport, port=int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
