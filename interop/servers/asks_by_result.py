"""The tools that ask, with version 2 of the Python SDK: a tool runs once its questions are answered.

How they are put to the client is up to the SDK: by a result that asks, or by
requests to a client of the handshake era.
"""

from typing import Annotated

from mcp.server.mcpserver import Elicit, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


async def who() -> Elicit[Name]:
    return Elicit("Please tell the name", Name)


async def what() -> Elicit[Color]:
    return Elicit("Please tell the color", Color)


async def what_then(name: Annotated[Name, Resolve(who)]) -> Elicit[Color]:
    return Elicit(f"Please tell the color, {name.name}", Color)


async def model() -> Sample:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Say something."))
    return Sample([question], max_tokens=10)


def add_to(server, executed):
    @server.tool()
    async def ask(tag: str, name: Annotated[Name, Resolve(who)]) -> str:
        """Asks the client's user for a name."""
        executed(tag)
        return f"accepted: {name.name}"

    @server.tool()
    async def ask_twice(
        tag: str, name: Annotated[Name, Resolve(who)], color: Annotated[Color, Resolve(what_then)]
    ) -> str:
        """Asks for a name, then for a color."""
        executed(tag)
        return f"{name.name} likes {color.color}"

    @server.tool()
    async def ask_both(
        tag: str, name: Annotated[Name, Resolve(who)], color: Annotated[Color, Resolve(what)]
    ) -> str:
        """Asks for a name and a color at once."""
        executed(tag)
        return f"{name.name} likes {color.color}"

    @server.tool()
    async def ask_model(tag: str, said: Annotated[CreateMessageResult, Resolve(model)]) -> str:
        """Asks the client's model."""
        executed(tag)
        return said.content.text
