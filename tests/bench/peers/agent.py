#!/usr/bin/python3
"""The agent one would write in an afternoon with python3-websockets: agent.py PORT CAFILE

Runs {"op": "run", "id": N, "argv": [...]} and streams its output as binary messages, u32 id and bytes.
"""
import asyncio
import json
import ssl
import sys

import websockets


async def run(ws, order):
    head = order["id"].to_bytes(4, "big")
    process = await asyncio.create_subprocess_exec(
        *order["argv"], stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, limit=1 << 20)
    while piece := await process.stdout.read(65536):
        await ws.send(head + piece)
    await ws.send(json.dumps({"op": "exit", "id": order["id"], "code": await process.wait()}))


async def main(port, ca):
    context = ssl.create_default_context(cafile=ca)
    running = set()
    async with websockets.connect(f"wss://localhost:{port}/peer", ssl=context, compression=None, max_size=None,
                                  ping_interval=None) as ws:
        async for message in ws:
            task = asyncio.create_task(run(ws, json.loads(message)))
            running.add(task)
            task.add_done_callback(running.discard)


try:
    asyncio.run(main(*sys.argv[1:3]))
except websockets.ConnectionClosed:
    pass
