// relay.js edge PORT-FILE TARGET CERT KEY | cloud PORT-FILE EDGE-PORT CA: TCP <-> WebSocket over TLS <-> TCP, one of each a connection.
const fs = require('fs'), net = require('net'), https = require('https'), WebSocket = require(process.env.BENCH_WS);
const [role, file, port, a, b] = process.argv.slice(2);
function join(ws, s) {
  s.setNoDelay(true);
  ws._socket.setNoDelay(true);
  s.on('data', d => { ws.send(d, () => { if (s.isPaused() && ws.bufferedAmount < 1 << 19) s.resume(); }); if (ws.bufferedAmount > 1 << 20) s.pause(); });
  ws.on('message', d => { if (!s.write(d)) { ws._socket.pause(); s.once('drain', () => ws._socket.resume()); } });
  s.on('close', () => ws.close()); ws.on('close', () => s.destroy());
  s.on('error', () => {}); ws.on('error', () => {});
}
const ready = server => server.listen(0, '127.0.0.1', () => { fs.writeFileSync(file + '.new', String(server.address().port)); fs.renameSync(file + '.new', file); });
if (role === 'edge') {
  const server = https.createServer({ cert: fs.readFileSync(a), key: fs.readFileSync(b) });
  new WebSocket.Server({ server, perMessageDeflate: false }).on('connection', ws => join(ws, net.connect(+port, '127.0.0.1')));
  ready(server);
} else {
  ready(net.createServer({ pauseOnConnect: true }, s => {
    const ws = new WebSocket(`wss://localhost:${port}/`, { ca: fs.readFileSync(a), perMessageDeflate: false });
    ws.on('open', () => { join(ws, s); s.resume(); });
    ws.on('error', () => s.destroy());
  }));
}
