"""The tools that ask, with version 1 of the Python SDK: the server sends requests while they run."""

import anyio
from mcp.server.fastmcp import Context
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


async def elicit(ctx, schema):
    result = await ctx.elicit(message="Please tell", schema=schema)
    if result.action != "accept":
        raise RuntimeError(f"the user does not accept: {result.action}")
    return result.data


def add_to(server, executed):
    @server.tool()
    async def ask(tag: str, ctx: Context) -> str:
        """Asks the client's user for a name."""
        executed(tag)
        return f"accepted: {(await elicit(ctx, Name)).name}"

    @server.tool()
    async def ask_twice(tag: str, ctx: Context) -> str:
        """Asks for a name, then for a color."""
        executed(tag)
        name = (await elicit(ctx, Name)).name
        return f"{name} likes {(await elicit(ctx, Color)).color}"

    @server.tool()
    async def ask_both(tag: str, ctx: Context) -> str:
        """Asks for a name and a color at once."""
        executed(tag)
        said = {}

        async def tell(schema):
            said.update((await elicit(ctx, schema)).model_dump())

        async with anyio.create_task_group() as group:
            group.start_soon(tell, Name)
            group.start_soon(tell, Color)
        return "{name} likes {color}".format(**said)

    @server.tool()
    async def ask_model(tag: str, ctx: Context) -> str:
        """Asks the client's model."""
        executed(tag)
        question = SamplingMessage(role="user", content=TextContent(type="text", text="Say something."))
        result = await ctx.session.create_message([question], max_tokens=10, related_request_id=ctx.request_id)
        return result.content.text
