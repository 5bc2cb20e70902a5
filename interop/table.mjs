// The results as docs/interop.md. Nothing in it depends on time or place, so
// that two good runs of the same versions make the same file.
import { network, networkCells } from './network.mjs';
import { clients, eraClients, servers, transports, tries } from './peers.mjs';

const checks = ['progress', 'elicitation', 'cancel', 'resources', 'prompts'];
const asked = ['form', 'two rounds', 'two at once', 'sampling'];
const transportNames = { http: 'Streamable HTTP', sse: 'HTTP+SSE', stdio: 'stdio' };

// named is how a client or a server is called.
export const named = ({ name, version, mode }) => [name, version, mode && `(${mode})`].filter(Boolean).join(' ');

// title names a cell.
export function title({ table, client, server, transport, between, asked }) {
  const how = between ? between.name : `${transport}${{ upstream: ' upstream', limits: ' direct' }[table] ?? ''}`;
  return `${named(client)} ${named(server)} ${how}${table === 'questions' || asked ? ' questions' : ''}`;
}

const row = (cells) => `| ${cells.join(' | ')} |`;
const plain = (text) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ').slice(0, 400);

function mark(outcome) {
  if (outcome === undefined) return '–';
  return outcome === 'ok' ? 'ok' : '**FAIL**';
}

function both(result) {
  const { list, call } = result.checks;
  if (list === 'ok' && call === 'ok') return 'ok';
  return '**FAIL**';
}

// sorted puts the cells of one table in the order of clients, servers and transports.
function sorted(cells, table, order) {
  const place = (cell) =>
    (order.indexOf(cell.client) * servers.length + servers.indexOf(cell.server)) * transports.length +
    transports.indexOf(cell.transport);
  return cells.filter((cell) => cell.table === table).toSorted((a, b) => place(a) - place(b));
}

function matrix(cells) {
  const lines = [
    row(['client', 'server', 'transport', 'version', 'list + call', ...checks, 'cell']),
    row(Array(6 + checks.length).fill('---')),
  ];
  for (const { client, server, transport, result } of sorted(cells, 'matrix', clients)) {
    const names = [named(client), named(server), transportNames[transport]];
    const outcomes = checks.map((check) => (Object.keys(result.checks).length ? mark(result.checks[check]) : ' '));
    lines.push(row([...names, result.negotiated || '?', both(result), ...outcomes, verdict(result)]));
  }
  return lines.join('\n');
}

function verdict({ error }) {
  return error ? `**FAIL** ${plain(error)}` : 'ok';
}

// eras has a row for each server and transport, and a column for each client.
function eras(cells) {
  const lines = [row(['server', 'transport', ...eraClients.map(named)]), row(Array(2 + eraClients.length).fill('---'))];
  for (const server of servers.filter((one) => one.eras)) {
    for (const transport of transports) {
      const outcomes = eraClients.map((client) => {
        if (!tries(client, transport)) return '–';
        const { result } = cells.find(
          (cell) => cell.table !== 'questions' && cell.client === client && cell.server === server && cell.transport === transport,
        );
        const { list, call } = result.checks;
        if (list === 'ok' && call === 'ok' && result.negotiated === client.negotiated) return result.negotiated;
        return `**FAIL** ${plain(result.error)}`;
      });
      lines.push(row([named(server), transportNames[transport], ...outcomes]));
    }
  }
  return lines.join('\n');
}

function questions(cells) {
  const lines = [
    row(['server', 'client', 'transport', 'version', ...asked, 'cell']),
    row(Array(5 + asked.length).fill('---')),
  ];
  const order = [...new Set(servers.flatMap((server) => server.questions ?? []))];
  for (const { client, server, transport, result } of sorted(cells, 'questions', order)) {
    const names = [named(server), named(client), transportNames[transport]];
    lines.push(row([...names, result.negotiated || '?', ...asked.map((check) => mark(result.checks[check])), verdict(result)]));
  }
  return lines.join('\n');
}

// onNetwork has the cells of the servers on the network in one table, in the order in which they are listed.
function onNetwork(cells, table, asked = false) {
  const found = new Map(cells.map((cell) => [title(cell), cell]));
  return network
    .toSorted((a, b) => named(a).localeCompare(named(b), 'en'))
    .flatMap(networkCells)
    .filter((cell) => cell.table === table && Boolean(cell.asked) === asked)
    .map((cell) => found.get(title(cell)));
}

// between is how a client gets to a server that is on the network.
const between = (cell) => cell.between?.name ?? `holdfast serve, ${transportNames[cell.transport]}`;

function met(cells, table) {
  const lines = [
    row(['server', 'client', 'by way of', 'version', 'list + call', ...checks, 'cell']),
    row(Array(6 + checks.length).fill('---')),
  ];
  for (const cell of onNetwork(cells, table)) {
    const { client, server, result } = cell;
    const outcomes = checks.map((check) => mark(result.checks[check]));
    const names = [named(server), named(client), between(cell)];
    lines.push(row([...names, result.negotiated || '?', both(result), ...outcomes, verdict(result)]));
  }
  return lines.join('\n');
}

function askedOnNetwork(cells) {
  const lines = [row(['server', 'client', 'by way of', 'version', ...asked, 'cell']), row(Array(5 + asked.length).fill('---'))];
  for (const cell of [...onNetwork(cells, 'upstream', true), ...onNetwork(cells, 'connect', true)]) {
    const { client, server, result } = cell;
    const outcomes = asked.map((check) => mark(result.checks[check]));
    lines.push(row([named(server), named(client), between(cell), result.negotiated || '?', ...outcomes, verdict(result)]));
  }
  return lines.join('\n');
}

// limits has a row for each check that fails without Holdfast as well.
function limits(cells) {
  const lines = [row(['peer', 'check', 'why', 'shown without Holdfast by']), row(Array(4).fill('---'))];
  for (const { client, server, between, limits, result } of onNetwork(cells, 'limits')) {
    const who = between ? `${between.name} before ${named(server)}` : named(server);
    for (const [check, why] of Object.entries(limits)) {
      lines.push(row([who, check, why, result.error ? `**FAIL** ${plain(result.error)}` : named(client)]));
    }
  }
  return lines.join('\n');
}

// document makes the whole file.
export function document({ cells, others }) {
  const failed = [...cells.map((cell) => cell.result), ...others].filter((outcome) => outcome.error).length;
  const passed = cells.length + others.length - failed;
  return `# Interop

Made by \`make interop\` (\`interop/run\`): real clients, a real \`holdfast\` process, real MCP servers, on
stdio and on the network.
${passed} passed, ${failed} failed. Do not edit.

- Streamable HTTP and HTTP+SSE: one \`holdfast serve -- SERVER\` for each server, with its defaults; all clients use its
  \`/mcp\` and \`/sse\`, two at a time.
- stdio: the client starts \`holdfast serve --transport stdio -- SERVER\` itself. When it has ended, no process may be left.
- *version*: the protocol version that the client reports as negotiated.
- *list + call*: \`tools/list\`, then a \`tools/call\` of an echo tool with a text that a careless re-encoding changes.
- *progress*: a call with a progress callback; every notification came, in order. (The two TypeScript SDKs do not call
  back for those that come in one read with the answer: for them, every notification came to their transport.)
- *elicitation*: a tool asks the user, the client answers, the answer is in the tool's result.
- *cancel*: a call is cancelled once its first progress shows that it runs; our own servers (all but server-everything)
  then tell that they saw the cancellation, and the session goes on.
- *resources*: \`resources/list\` and \`resources/read\`. *prompts*: \`prompts/list\`.
- –: not tried. Inspector's command line makes one request in each run; its last two columns are tried over one
  transport. mcp-go cancels over HTTP by ending the call's stream only, and HTTP+SSE has none.

${matrix(cells)}

## Every era of client before every era of server

The version that the client and the gateway agree on, in a cell whose *list + call* are done. *handshake only* and
*stateless only* are the same server behind a filter that refuses what belongs to the other era. server-everything,
go-sdk 1.6.1 and *handshake only* know nothing of 2026-07-28, *stateless only* knows nothing else; go-sdk 1.8.0 speaks
both. The clients are as they come, or have a setting: *auto* looks for 2026-07-28 and falls back, *pinned* and *modern*
insist on it. Inspector is tried over Streamable HTTP only.

${eras(cells)}

## Questions across eras

A tool asks, and server and client are of different eras. Two clients of one name make each call at the same time, and
neither answers before both are being asked; each has to find its own answers in its own result. The server then has to
count one execution of each call.

- *form*: the tool asks the user for a name. *two rounds*: for a name, and then for a color. *two at once*: for both at
  the same time. *sampling*: it asks the client's model.
- FastMCP and go-sdk 1.6.1 ask with requests while the tool runs, their clients here take questions as results of
  2026-07-28 only; with the servers that are *stateless only* it is the other way round.

${questions(cells)}

## Servers that are on the network

Each server listens on the loopback, with \`holdfast serve --upstream URL\` before it, and meets clients of both eras in
turn, over both transports of the gateway. *with sessions*, *createMcpHandler* and *stateless only* are three ways to serve
with the TypeScript SDK 2; server-everything is one of the TypeScript SDK 1. supergateway serves a server on stdio.
mcp-remote is itself on stdio here, as \`holdfast serve -- mcp-remote URL\`. The checks are those of the first table; –: not
made, because Inspector cannot (see there), or because of a limit of the peer (see below).

${met(cells, 'upstream')}

## holdfast connect

The client starts \`holdfast connect URL\` as its server on stdio, and URL is a server on the network. When the client has
ended, no process may be left. Some of the servers are \`holdfast serve -- SERVER\`; with those, mcp-remote takes the place
of \`holdfast connect\` for comparison. It speaks the handshake era with its client.

${met(cells, 'connect')}

## Questions of servers on the network

As above: two clients at once, each with its own answers, before a server of the other era. By way of connect each of the
two has its own.

${askedOnNetwork(cells)}

## What peers cannot do

The checks that are left out above for one of the peers. Here a client of the same kind meets it with no Holdfast in
between, and the cell passes if these checks fail there too, but nothing else does. (supergateway over HTTP+SSE serves one
client at a time: there two clients ask at once.)

${limits(cells)}

## Besides the tables

| check | outcome |
| --- | --- |
${others.map(({ check, error }) => row([plain(check), error ? `**FAIL** ${plain(error)}` : 'ok'])).join('\n')}
`;
}
