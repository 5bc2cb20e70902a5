// The servers and clients of the table: how each is started, and what it is called.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { plans } from './plans.mjs';

export const here = path.dirname(fileURLToPath(import.meta.url));
export const cache = process.env.INTEROP_CACHE;
export const holdfast = process.env.INTEROP_HOLDFAST;
export const logs = path.join(cache, 'logs');
export const nodeHome = path.join(cache, 'node');

export const node = process.execPath;
export const bin = (name) => path.join(cache, 'bin', name);
export const script = (folder, name) => path.join(nodeHome, folder, name);
const python = (version) => path.join(cache, `python-${version}`, 'bin', 'python');

export const npm = JSON.parse(readFileSync(path.join(here, 'package.json'))).dependencies;
export const pip = (version) =>
  /^mcp==(.*)$/m.exec(readFileSync(path.join(here, 'python', `requirements-${version}.txt`), 'utf8'))[1];
export const go = (file, module) =>
  new RegExp(`${module} v(\\S+)`).exec(readFileSync(path.join(here, 'go', file), 'utf8'))[1];

export const everything = path.join(nodeHome, 'node_modules', '.bin', 'mcp-server-everything');
// -B: no compiled files among the sources.
export const fastmcp = (version) => [python(version), '-B', path.join(here, 'servers', 'fastmcp_server.py')];
export const only = (era, command) => [node, path.join(here, 'servers', 'only.mjs'), era, ...command];

export const transports = ['http', 'sse', 'stdio'];

const handshake = '2025-11-25';
const stateless = '2026-07-28';

// A client's negotiated is the version that it ends up with here, whatever
// the server: the newest that it asks for.
const js = (name, file, negotiated, mode, era) => ({
  name: `@modelcontextprotocol/${name}`,
  version: npm[`@modelcontextprotocol/${name}`],
  command: [node, script('clients', file)],
  negotiated,
  mode,
  env: era ? { INTEROP_ERA: era } : {},
});
const py = (version, negotiated) => ({
  name: 'Python SDK',
  version: pip(version),
  command: [python(version), path.join(here, 'clients', 'python_client.py')],
  negotiated,
});
const goSDK = (file, program, negotiated) => ({
  name: 'go-sdk',
  version: go(file, 'go-sdk'),
  command: [bin(program)],
  negotiated,
});

const sdk = js('sdk', 'sdk-v1.mjs', handshake);
const client = js('client', 'client-v2.mjs', handshake);
const clientAuto = js('client', 'client-v2.mjs', stateless, 'auto', 'auto');
const clientPinned = js('client', 'client-v2.mjs', stateless, 'pinned', stateless);
const inspector = js('inspector', 'inspector.mjs', handshake);
const inspectorAuto = js('inspector', 'inspector.mjs', stateless, 'auto', 'auto');
const inspectorModern = js('inspector', 'inspector.mjs', stateless, 'modern', 'modern');
const goOld = goSDK('go16.mod', 'client-old', handshake);
const goNew = goSDK('go.mod', 'client-new', stateless);
const mcpGo = { name: 'mcp-go', version: go('go.mod', 'mcp-go'), command: [bin('mcpgo')], negotiated: stateless };
const python1 = py(1, handshake);
const python2 = py(2, stateless);

// clients are those of the matrix, as they come.
export const clients = [sdk, client, inspector, python1, python2, goOld, goNew, mcpGo];

// eraClients are those of the table of eras; Inspector, which takes long, over HTTP only.
export const eraClients = [sdk, client, clientAuto, clientPinned, goNew, goOld, mcpGo, inspector, inspectorAuto, inspectorModern];
export const tries = (one, transport) => transport === 'http' || one.name !== inspector.name;

export const modern = [clientPinned, goNew, mcpGo];
export const legacy = [sdk, python1, goOld];

// Those that meet the servers on the network, by the era that they speak, and Inspector.
export const byEra = { handshake: [sdk, python1, goOld, client], stateless: [clientPinned, goNew, mcpGo, python2] };
export const eraOf = (one) => (one.negotiated === stateless ? 'stateless' : 'handshake');
export const inspectors = { handshake: inspector, stateless: inspectorModern };

// Each server with the tables it is in: matrix, eras, and questions with the clients that it asks across eras.
export const servers = [
  {
    name: 'server-everything',
    version: npm['@modelcontextprotocol/server-everything'],
    command: [node, everything],
    plan: plans.everything,
    matrix: true,
    eras: true,
  },
  { name: 'FastMCP', version: pip(1), command: fastmcp(1), plan: plans.own, matrix: true, questions: modern },
  { name: 'MCPServer', version: pip(2), command: fastmcp(2), plan: plans.own, matrix: true },
  { name: 'go-sdk', version: go('go.mod', 'go-sdk'), command: [bin('server')], plan: plans.own, matrix: true, eras: true },
  {
    name: 'go-sdk',
    version: go('go16.mod', 'go-sdk'),
    command: [bin('server-old')],
    plan: plans.own,
    eras: true,
    questions: modern,
  },
  {
    name: 'go-sdk',
    version: go('go.mod', 'go-sdk'),
    mode: 'handshake only',
    command: only('handshake', [bin('server')]),
    plan: plans.own,
    eras: true,
  },
  {
    name: 'go-sdk',
    version: go('go.mod', 'go-sdk'),
    mode: 'stateless only',
    command: only('stateless', [bin('server')]),
    plan: plans.own,
    eras: true,
    questions: legacy,
  },
  {
    name: 'MCPServer',
    version: pip(2),
    mode: 'stateless only',
    command: only('stateless', fastmcp(2)),
    plan: plans.own,
    questions: legacy,
  },
];
