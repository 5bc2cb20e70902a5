// An MCP server of @modelcontextprotocol/server over Streamable HTTP: server-v2.mjs handler|strict|sessions PORT
// handler is its own createMcpHandler as it comes, which keeps no sessions; strict is the same, but refuses the handshake
// era; sessions serves that era with sessions, and the other with createMcpHandler.
import { randomUUID } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import {
  acceptedContent, createMcpHandler, inputRequired, inputResponse, isLegacyRequest, McpServer,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

const [mode, port] = process.argv.slice(2);
const ledger = process.env.INTEROP_LEDGER ?? '/dev/null';

const text = (value) => ({ content: [{ type: 'text', text: `${value}` }] });
const writeDown = (what, tag) => appendFileSync(ledger, `${what} ${tag}\n`);
const countOf = (what, tag) => readFileSync(ledger, 'utf8').split('\n').filter((line) => line === `${what} ${tag}`).length;

async function progress({ mcpReq }, now, total) {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  const params = { progressToken, progress: now, total, message: `step ${now}` };
  await mcpReq.notify({ method: 'notifications/progress', params });
}

const form = (field) => inputRequired.elicit({ message: 'Please tell', requestedSchema: z.object({ [field]: z.string() }) });
const answer = ({ mcpReq }, question, field) => acceptedContent(mcpReq.inputResponses, question)?.[field];
const asking = (inputRequests, requestState) => inputRequired({ inputRequests, ...(requestState && { requestState }) });
const executed = (tag, value) => {
  writeDown('executed', tag);
  return text(value);
};

// A tool that asked is called again, with the answers and the state, and knows nothing else of the first time.
const tools = {
  ask({ tag }, ctx) {
    const name = answer(ctx, 'who', 'name');
    return name ? executed(tag, `accepted: ${name}`) : asking({ who: form('name') });
  },
  ask_twice({ tag }, ctx) {
    const name = answer(ctx, 'who', 'name');
    if (name) return asking({ what: form('color') }, `name:${name}`);
    const [, known] = /^name:(.*)$/.exec(ctx.mcpReq.requestState() ?? '') ?? [];
    const color = answer(ctx, 'what', 'color');
    return known && color ? executed(tag, `${known} likes ${color}`) : asking({ who: form('name') });
  },
  ask_both({ tag }, ctx) {
    const [name, color] = [answer(ctx, 'who', 'name'), answer(ctx, 'what', 'color')];
    return name && color ? executed(tag, `${name} likes ${color}`) : asking({ who: form('name'), what: form('color') });
  },
  ask_model({ tag }, ctx) {
    const said = inputResponse(ctx.mcpReq.inputResponses, 'model');
    if (said.kind === 'sampling') return executed(tag, [said.result.content].flat()[0].text);
    const messages = [{ role: 'user', content: { type: 'text', text: 'Say something.' } }];
    return asking({ model: inputRequired.createMessage({ messages, maxTokens: 10 }) });
  },
  cancelled: ({ tag }) => text(countOf('cancelled', tag)),
  executed: ({ tag }) => text(countOf('executed', tag)),
};

async function count({ steps }, ctx) {
  for (let step = 1; step <= steps; step++) {
    await progress(ctx, step, steps);
    await pause(20);
  }
  return text(`counted to ${steps}`);
}

async function wait({ seconds, tag }, ctx) {
  const { signal } = ctx.mcpReq;
  signal.addEventListener('abort', () => writeDown('cancelled', tag), { once: true });
  await progress(ctx, 1, 2);
  await pause(seconds * 1000, undefined, { signal });
  return text('waited');
}

function make() {
  const server = new McpServer({ name: 'interop-server-v2', version: '1.0.0' });
  const tool = (name, fields, call) =>
    server.registerTool(name, { description: `The tool ${name}.`, inputSchema: z.object(fields) }, call);
  tool('echo', { message: z.string() }, ({ message }) => text(message));
  tool('count', { steps: z.number() }, count);
  tool('wait', { seconds: z.number(), tag: z.string() }, wait);
  for (const [name, call] of Object.entries(tools)) tool(name, { tag: z.string() }, call);
  server.registerResource('greeting', 'memo://greeting', { mimeType: 'text/plain' }, (uri) => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'hello from a resource' }],
  }));
  const content = { type: 'text', text: 'Greet the reader.' };
  server.registerPrompt('greet', { description: 'A prompt to list.' }, () => ({ messages: [{ role: 'user', content }] }));
  return server;
}

const handler = toNodeHandler(createMcpHandler(make, mode === 'handler' ? {} : { legacy: 'reject' }));
const sessions = new Map();

// inSession serves a request of the handshake era.
async function inSession(request, response, body) {
  const id = request.headers['mcp-session-id'];
  if (id && !sessions.has(id)) return void response.writeHead(404).end();
  let transport = sessions.get(id);
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (sessionId) => void sessions.set(sessionId, transport),
      onsessionclosed: (sessionId) => void sessions.delete(sessionId),
    });
    await make().connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

async function bodyOf(request) {
  const parts = await request.toArray();
  return parts.length > 0 ? JSON.parse(Buffer.concat(parts).toString()) : undefined;
}

async function serve(request, response) {
  if (mode !== 'sessions') return handler(request, response);
  const body = await bodyOf(request);
  const legacy = await isLegacyRequest(await toWebRequest(request, body));
  return legacy ? inSession(request, response, body) : handler(request, response, body);
}

createServer((request, response) => {
  serve(request, response).catch((err) => {
    console.error(err);
    response.destroy();
  });
}).listen(Number(port), '127.0.0.1');
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
