// Makes a stdio server that speaks both eras look like one of a single era: only.mjs handshake|stateless COMMAND…
// It answers what belongs to the other era itself, the way a server answers that knows nothing of it.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const [era, command, ...args] = process.argv.slice(2);
const stateless = '2026-07-28';
const version = 'io.modelcontextprotocol/protocolVersion';
const server = spawn(command, args, { stdio: ['pipe', 'inherit', 'inherit'] });

// refusal is the error for a message of the other era, or nothing for one of this.
function refusal({ method, params }) {
  const marked = method === 'server/discover' || params?._meta?.[version] !== undefined;
  if (era === 'handshake') return marked && { code: -32601, message: 'Method not found' };
  if (method !== 'initialize' && method !== 'notifications/initialized') return;
  const data = { supported: [stateless], requested: params?.protocolVersion ?? '' };
  return { code: -32022, message: 'Unsupported protocol version', data };
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const message = JSON.parse(line);
    const error = refusal(message);
    if (!error) server.stdin.write(`${line}\n`);
    else if (message.id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }));
  })
  .on('close', () => server.stdin.end());
server.on('exit', (code) => process.exit(code ?? 1));
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => server.kill(signal));
