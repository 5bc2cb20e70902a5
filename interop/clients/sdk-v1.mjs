// The client of @modelcontextprotocol/sdk: sdk-v1.mjs http|sse|stdio URL-or-command…
import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { drive, texts } from './checks.mjs';

const { version } = JSON.parse(
  readFileSync(new URL('../node_modules/@modelcontextprotocol/sdk/package.json', import.meta.url)),
);

function open(kind, [first, ...rest]) {
  if (kind === 'http') return new StreamableHTTPClientTransport(new URL(first));
  if (kind === 'sse') return new SSEClientTransport(new URL(first));
  return new StdioClientTransport({ command: first, args: rest, stderr: 'inherit' });
}

await drive('@modelcontextprotocol/sdk', version, (kind, target, answerer) => {
  const transport = open(kind, target);
  let negotiated;
  const told = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (v) => {
    negotiated = v;
    told?.(v);
  };
  const capabilities = { elicitation: {}, sampling: {} };
  const client = new Client({ name: 'interop-sdk-v1', version }, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => answerer.form(params));
  client.setRequestHandler(CreateMessageRequestSchema, () => answerer.model());
  const lists = {
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    resources: async () => (await client.listResources()).resources.map((resource) => resource.uri),
    prompts: async () => (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  };
  return {
    transport,
    connect: () => client.connect(transport),
    negotiated: () => negotiated,
    server: () => client.getServerVersion()?.name,
    list: (what) => lists[what](),
    read: async (uri) => (await client.readResource({ uri })).contents[0]?.text,
    call: async (name, args, options) => texts(await client.callTool({ name, arguments: args }, undefined, options)),
    close: async () => {
      await transport.terminateSession?.();
      await client.close();
    },
  };
});
