// The agent one would write in an afternoon with node and the npm package ws: node agent.js PORT CAFILE
// Runs {"op": "run", "id": N, "argv": [...]} and streams its output as binary messages, u32 id and bytes.
'use strict';
const fs = require('fs');
const { spawn } = require('child_process');
const WebSocket = require(process.env.BENCH_WS || 'ws');

const ENOUGH = 4 << 20;		// bytes queued at which the pipe is left alone
const ws = new WebSocket(`wss://localhost:${process.argv[2]}/peer`, {
  ca: fs.readFileSync(process.argv[3]), perMessageDeflate: false,
});
ws.on('open', () => ws._socket.setNoDelay(true));
ws.on('close', () => process.exit(0));
ws.on('error', (e) => { console.error(String(e)); process.exit(1); });

ws.on('message', (text) => {
  const order = JSON.parse(text);
  const child = spawn(order.argv[0], order.argv.slice(1), { stdio: ['ignore', 'pipe', 'pipe'] });
  const head = Buffer.alloc(4);
  head.writeUInt32BE(order.id);
  for (const pipe of [child.stdout, child.stderr]) {
    pipe.on('data', (piece) => {
      ws.send(Buffer.concat([head, piece]), () => {
        if (pipe.isPaused() && ws.bufferedAmount < ENOUGH) pipe.resume();
      });
      if (ws.bufferedAmount >= ENOUGH) pipe.pause();
    });
  }
  const end = (code) => ws.send(JSON.stringify({ op: 'exit', id: order.id, code }));
  child.on('close', end);
  child.on('error', () => end(127));
});
