// The servers that are on the network already, and which clients meet each of them: through a gateway before it
// (holdfast serve --upstream), and through what stands in its place on stdio (holdfast connect).
import path from 'node:path';
import {
  bin, byEra, cache, eraOf, everything, fastmcp, go, holdfast, inspectors, legacy, modern, node, nodeHome, npm, only, pip, script,
} from './peers.mjs';
import { plans } from './plans.mjs';

const eras = ['handshake', 'stateless'];
const mcpRemoteHome = path.join(cache, 'mcp-remote'); // in place of the user's
const tool = (name) => path.join(nodeHome, 'node_modules', '.bin', name);
const quoted = (command) => command.map((word) => `'${word}'`).join(' ');
const at = (port) => `127.0.0.1:${port}`;

// What a client starts on stdio to get to a URL.
const connect = { name: 'holdfast connect', command: (url) => [holdfast, 'connect', url] };
const mcpRemote = (...flags) => ({
  name: ['mcp-remote', npm['mcp-remote'], ...flags].join(' '),
  command: (url) => ['/usr/bin/env', `MCP_REMOTE_CONFIG_DIR=${mcpRemoteHome}`, node, tool('mcp-remote'), url, ...flags],
});
const http = { mode: 'Streamable HTTP', path: '/mcp' };
const sse = { mode: 'HTTP+SSE', path: '/sse' };

const sdkV1 = (mode) => ({
  name: 'server-everything',
  version: npm['@modelcontextprotocol/server-everything'],
  plan: plans.everything,
  ...mode,
  listen: (port) => ({
    command: [node, everything, mode === sse ? 'sse' : 'streamableHttp'],
    env: { PORT: `${port}` },
  }),
});
const python = (version, mode) => ({
  name: version === 1 ? 'FastMCP' : 'MCPServer',
  version: pip(version),
  plan: plans.own,
  ...mode,
  listen: (port) => ({ command: [...fastmcp(version), mode === sse ? 'sse' : 'streamable-http', `${port}`] }),
});
const sdkV2 = (kind, mode) => ({
  name: '@modelcontextprotocol/server',
  version: npm['@modelcontextprotocol/server'],
  plan: plans.own,
  path: '/mcp',
  mode,
  listen: (port) => ({ command: [node, script('servers', 'server-v2.mjs'), kind, `${port}`] }),
});
const goSDK = (file, program, kind, mode) => ({
  name: 'go-sdk',
  version: go(file, 'go-sdk'),
  plan: plans.own,
  ...mode,
  listen: (port) => ({ command: [bin(program), kind, at(port)] }),
});
const mcpGo = (kind, mode) => ({
  name: 'mcp-go',
  version: go('go.mod', 'mcp-go'),
  plan: plans.own,
  ...mode,
  listen: (port) => ({ command: [bin('mcpgoserver'), kind, at(port)] }),
});
const supergateway = (mode, before, command, ...flags) => ({
  name: 'supergateway',
  version: npm.supergateway,
  plan: plans.own,
  mode: `${mode.mode} before ${before}`,
  path: mode.path,
  listen: (port) => ({
    command: [tool('supergateway'), '--stdio', quoted(command), '--port', `${port}`, ...flags],
  }),
});

// gateway is a holdfast before a server on stdio, for clients by way of something on stdio.
const gateway = (before, command, at, cells) => ({
  name: 'holdfast serve',
  mode: `before ${before}, ${at}`,
  plan: plans.own,
  path: at,
  gateway: { command, cells },
});

const auto = { ...mcpRemote('--protocol', 'auto'), limits: { cancel: 'it passes no cancellation on to a stateless server' } };

const goOld = `go-sdk ${go('go16.mod', 'go-sdk')}`;
const goNew = `go-sdk ${go('go.mod', 'go-sdk')}`;
const statelessOnly = `${goNew}, stateless only`;

const noSession = 'it keeps no sessions: what it asks a client of the handshake era has no way back';
const noCall = 'it keeps no sessions: a cancellation of the handshake era, a request of its own, does not find its call';
const plainJSON = 'it answers with plain JSON: nothing can come before the answer, and a tool that says something fails';
const noElicitation =
  'its HTTP+SSE sessions put no questions to the user, and 2026-07-28, with its questions in results, has no HTTP+SSE';
const killed = 'it ends the process of a cancelled call, and the server in it hears nothing of the cancellation';
const toAll = 'what it asks goes to all of its clients at once, and any of them may answer';

// Each server, with what clients of an era cannot do before it for want of something in it (limits). Those that take
// long are first.
export const network = [
  { ...sdkV1(http), inspected: 'handshake' },
  {
    ...sdkV2('strict', 'stateless only'),
    questions: legacy,
    inspected: 'stateless',
    shown: [[byEra.handshake[0], auto]],
  },
  gateway('FastMCP', fastmcp(1), '/mcp', [
    [mcpRemote(), [legacy[0], legacy[2]]],
    [connect, [legacy[0], modern[0]]],
  ]),
  gateway('FastMCP', fastmcp(1), '/sse', [
    [mcpRemote('--transport', 'sse-only'), [legacy[0]]],
    [connect, [legacy[1]]],
  ]),
  gateway(statelessOnly, only('stateless', [bin('server')]), '/mcp', [
    [auto, [legacy[0]]],
    [connect, [legacy[0], modern[1]]],
  ]),
  {
    ...python(1, http),
    name: 'mcp-remote',
    version: npm['mcp-remote'],
    mode: 'on stdio, before FastMCP over Streamable HTTP',
    before: (url) => ['--', ...mcpRemote().command(url)],
  },
  {
    ...supergateway(http, goOld, [bin('server-old')], '--outputTransport', 'streamableHttp', '--stateful'),
    children: true,
  },
  {
    ...supergateway(http, goNew, [bin('server')], '--outputTransport', 'streamableHttp'),
    limits: { handshake: { elicitation: noSession, cancel: noCall }, stateless: { cancel: killed } },
  },
  {
    ...supergateway(http, statelessOnly, only('stateless', [bin('server')]), '--outputTransport', 'streamableHttp'),
    limits: { handshake: { cancel: killed }, stateless: { cancel: killed } },
    era: 'stateless',
  },
  {
    ...supergateway(sse, 'FastMCP', fastmcp(1)),
    limits: { handshake: { elicitation: toAll }, stateless: { elicitation: toAll } },
    alone: true,
  },
  sdkV1(sse),
  { ...python(1, http), questions: modern },
  python(1, sse),
  python(2, http),
  python(2, sse),
  sdkV2('sessions', 'with sessions'),
  { ...sdkV2('handler', 'createMcpHandler'), limits: { handshake: { elicitation: noSession, cancel: noCall } } },
  goSDK('go.mod', 'server', 'http', http),
  {
    ...goSDK('go.mod', 'server', 'stateless', { mode: 'stateless, plain JSON', path: '/mcp' }),
    limits: {
      handshake: { progress: plainJSON, cancel: plainJSON, elicitation: noSession },
      stateless: { progress: plainJSON, cancel: plainJSON },
    },
  },
  goSDK('go.mod', 'server', 'sse', sse),
  goSDK('go16.mod', 'server-old', 'http', http),
  mcpGo('http', http),
  {
    ...mcpGo('sse', sse),
    limits: { handshake: { elicitation: noElicitation }, stateless: { elicitation: noElicitation } },
    era: 'handshake',
  },
];

// networkCells lists the cells of one server: over each transport of the gateway before it and by connect, a client of
// each era in turn.
export function networkCells(server) {
  const turn = network.indexOf(server);
  const pick = (era, step) => byEra[era][(turn + step) % byEra[era].length];
  const cell = (table, client, transport, rest = {}) => {
    const cannot = Object.keys(rest.between?.limits ?? server.limits?.[eraOf(client)] ?? {});
    const plan = cannot.length > 0 ? plans.without(server.plan, cannot) : server.plan;
    return { table, client, server, transport, plan, ...rest };
  };
  const onStdio = (client, between, rest = {}) => cell('connect', client, 'stdio', { between, ...rest });
  if (server.gateway) return server.gateway.cells.flatMap(([between, some]) => some.map((client) => onStdio(client, between)));
  const inspected = server.inspected ? [inspectors[server.inspected]] : [];
  const short = { plan: plans.short(server.plan) };
  const upstream = [
    ...eras.map((era, i) => cell('upstream', pick(era, i), 'http')),
    cell('upstream', pick(eras[turn % 2], 2), 'sse'),
    ...inspected.map((client) => cell('upstream', client, 'http', short)),
  ];
  if (server.before) return upstream;
  const questions = { plan: plans.questions, asked: true };
  return [
    ...upstream,
    ...eras.map((era, i) => onStdio(pick(era, 1 + 2 * i), connect)),
    ...inspected.map((client) => onStdio(client, connect, short)),
    ...(server.questions ?? []).flatMap((client) => [
      cell('upstream', client, 'http', questions),
      onStdio(client, connect, questions),
    ]),
    ...limitCells(server, pick),
  ];
}

// limitCells are those in which a client meets the server without Holdfast, and fails in what cannot be done before it.
function limitCells(server, pick) {
  const shown = (client, limits, rest = {}) => ({
    table: 'limits',
    client,
    server,
    transport: server.path === '/sse' ? 'sse' : 'http',
    plan: plans.limited(server.plan, Object.keys(limits)),
    limits,
    ...rest,
  });
  // What one client alone can do, two try.
  if (server.alone) return [shown(pick('handshake', 0), { form: toAll }, { plan: plans.form })];
  return [
    ...(server.shown ?? []).map(([client, between]) => shown(client, between.limits, { between, transport: 'stdio' })),
    ...Object.entries(server.limits ?? {})
      .filter(([era]) => (server.era ?? era) === era)
      .map(([era, limits]) => shown(pick(era, 0), limits)),
  ];
}
