// Makes a stdio server that speaks both eras look like one of a single era: only.mjs handshake|stateless COMMAND…
// It answers what belongs to the other era itself, the way a server answers that knows nothing of it.
import { spawn } from 'node:child_process';

const [era, command, ...args] = process.argv.slice(2);
const stateless = '2026-07-28';
const meta = 'io.modelcontextprotocol/';
const server = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
const say = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));

// lines calls each with every line. (readline would also end one at U+2028, which JSON may hold.)
function lines(stream, each) {
  let rest = '';
  return stream.setEncoding('utf8').on('data', (text) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop();
    parts.forEach(each);
  });
}

// refusal is the error for a message of the other era, or nothing for one of this.
function refusal({ method, params }) {
  const marked = method === 'server/discover' || params?._meta?.[`${meta}protocolVersion`] !== undefined;
  if (era === 'handshake') return marked && { code: -32601, message: 'Method not found' };
  if (method !== 'initialize' && method !== 'notifications/initialized') return;
  const data = { supported: [stateless], requested: params?.protocolVersion ?? '' };
  return { code: -32022, message: 'Unsupported protocol version', data };
}

// listen takes the client's messages.
function listen() {
  lines(process.stdin, (line) => {
    const { id, ...message } = JSON.parse(line);
    const error = refusal(message);
    if (!error) server.stdin.write(`${line}\n`);
    else if (id !== undefined) say({ id, error });
  }).on('end', () => server.stdin.end());
}

// A filter is up long before a server in Python is, and would refuse a handshake when no server could yet:
// so it asks the server something of the server's era first. (Before a handshake, go-sdk takes no such question.)
const first = { jsonrpc: '2.0', id: 'up', method: 'server/discover' };
first.params = { _meta: { [`${meta}protocolVersion`]: stateless, [`${meta}clientCapabilities`]: {} } };
let up = era === 'handshake';
if (up) listen();
else server.stdin.write(`${JSON.stringify(first)}\n`);
lines(server.stdout, (line) => {
  if (up) return void process.stdout.write(`${line}\n`);
  up = true;
  listen();
});
server.on('exit', (code) => process.exit(code ?? 1));
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => server.kill(signal));
