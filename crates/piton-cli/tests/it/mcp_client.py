"""A client of `piton mcp` made with the `mcp` package: lists the tools, calls some, and answers what it is asked."""

import asyncio
import json
import os
import pathlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import ElicitResult

program, project = sys.argv[1], pathlib.Path(sys.argv[2])
questions = []


async def answer(context, params):
    questions.append(params.message)
    if len(questions) == 1:
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content={"restore": True})


async def main():
    server = StdioServerParameters(command=program, args=["mcp"], cwd=str(project), env={"HOME": os.environ["HOME"]})
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, elicitation_callback=answer) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            listed = await session.call_tool("list", {})
            assert "first" in listed.content[0].text, listed
            await session.call_tool("restore", {"checkpoint": "1"})
            declined = (project / "a.txt").read_text()
            await session.call_tool("restore", {"checkpoint": "1"})
            restored = (project / "a.txt").read_text()
    print(json.dumps({"tools": tools, "declined": declined, "restored": restored, "questions": len(questions)}))


asyncio.run(main())
