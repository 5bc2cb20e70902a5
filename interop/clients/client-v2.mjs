// The client of @modelcontextprotocol/client: client-v2.mjs http|sse|stdio URL-or-command…
// INTEROP_ERA has a version to insist on, or "auto"; without it the client is as it comes.
import { readFileSync } from 'node:fs';
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { drive, texts } from './checks.mjs';

const { version } = JSON.parse(
  readFileSync(new URL('../node_modules/@modelcontextprotocol/client/package.json', import.meta.url)),
);

function open(kind, [first, ...rest]) {
  if (kind === 'http') return new StreamableHTTPClientTransport(new URL(first));
  if (kind === 'sse') return new SSEClientTransport(new URL(first));
  return new StdioClientTransport({ command: first, args: rest, stderr: 'inherit' });
}

const era = process.env.INTEROP_ERA;
const versionNegotiation = era && { mode: era === 'auto' ? era : { pin: era } };

await drive('@modelcontextprotocol/client', version, (kind, target, answerer) => {
  const transport = open(kind, target);
  const capabilities = { elicitation: {}, sampling: {} };
  const client = new Client({ name: 'interop-client-v2', version }, { capabilities, ...(era && { versionNegotiation }) });
  client.setRequestHandler('elicitation/create', ({ params }) => answerer.form(params));
  client.setRequestHandler('sampling/createMessage', () => answerer.model());
  const lists = {
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    resources: async () => (await client.listResources()).resources.map((resource) => resource.uri),
    prompts: async () => (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  };
  return {
    transport,
    connect: () => client.connect(transport),
    negotiated: () => client.getNegotiatedProtocolVersion(),
    server: () => client.getServerVersion()?.name,
    list: (what) => lists[what](),
    read: async (uri) => (await client.readResource({ uri })).contents[0]?.text,
    call: async (name, args, options) => texts(await client.callTool({ name, arguments: args }, options)),
    close: async () => {
      await transport.terminateSession?.();
      await client.close();
    },
  };
});
