// Runs every client against every server on stdio over every transport with holdfast in between, and some against the
// servers on the network, then writes the table. Started by ./run, which installs the peers.
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { cellLimit, close, lastWords, logOf, open, released, runCell, seconds, serve, stop } from './cells.mjs';
import { network, networkCells } from './network.mjs';
import { cache, clients, eraClients, here, nodeHome, servers, transports, tries } from './peers.mjs';
import { plans } from './plans.mjs';
import { endsWithin, killAll, start } from './processes.mjs';
import { document, named, title } from './table.mjs';

const atOnce = 2; // cells
const runLimit = 660_000; // ms, all cells together
const only = process.env.INTEROP_ONLY && new RegExp(process.env.INTEROP_ONLY);

const began = Date.now();
const say = (text) => process.stderr.write(`interop: ${text.replaceAll(/\s+/g, ' ')}\n`);

process.on('exit', killAll);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));

// cellsOf lists the cells of one server in all tables. What the matrix has, the table of eras takes from there.
function cellsOf(server) {
  const cells = (table, some, plan) =>
    some.flatMap((client) => transports.map((transport) => ({ table, client, server, transport, plan })));
  const { plan } = server;
  const matrix = server.matrix ? cells('matrix', clients, plan) : [];
  const known = (client) => server.matrix && clients.includes(client);
  const eras = server.eras ? cells('eras', eraClients.filter((one) => !known(one)), plans.short(plan)) : [];
  const asked = server.questions ? cells('questions', server.questions, plans.questions) : [];
  return [...matrix, ...eras.filter((cell) => tries(cell.client, cell.transport)), ...asked];
}

// timed runs a cell, unless the time of all is over, and says how it went.
async function timed(cell, served, opened) {
  const since = Date.now();
  const late = { checks: {}, error: `not run: the ${runLimit / 1000} s for all cells are over` };
  const result = since - began > runLimit ? late : await runCell(cell, served, opened);
  say(`${result.error ? 'FAIL' : 'ok  '} ${title(cell)} ${result.negotiated ?? ''} ${seconds(since)} ${result.error ?? ''}`);
  return result;
}

// inTurns runs work on every item, atOnce of them at a time.
async function inTurns(items, work) {
  const queue = [...items];
  const worker = async () => {
    for (let item = queue.shift(); item; item = queue.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

// runServer runs all cells of one server before one gateway, and adds the gateway's own end as a cell.
async function runServer(server, results) {
  const cells = cellsOf(server).filter((cell) => !only || only.test(title(cell)));
  if (cells.length === 0) return;
  const served = await serve(named(server), ['--', ...server.command], cache).catch((err) => err);
  if (served instanceof Error) say(`FAIL ${named(server)}: ${served.message}`);
  await inTurns(cells, async (cell) => results.cells.push({ ...cell, result: await timed(cell, served) }));
  const check = `${named(server)}: SIGTERM, exit 0, no process left, one line on stdout`;
  await other(results, check, () => (served instanceof Error ? Promise.reject(served) : stop(served)));
}

// runNetwork runs all cells of one server on the network, one after the other: other servers have theirs meanwhile.
async function runNetwork(server, results) {
  const cells = networkCells(server).filter((cell) => !only || only.test(title(cell)));
  if (cells.length === 0) return;
  const name = named(server);
  const opened = await open(server, name).catch((err) => err);
  if (opened instanceof Error) say(`FAIL ${name}: ${opened.message}`);
  const before = server.before ?? ((url) => ['--upstream', url]);
  const serveIt = () => serve(`before ${name}`, before(opened.url), cache).catch((err) => err);
  const served = opened instanceof Error || server.gateway ? opened : await serveIt();
  for (const cell of cells) results.cells.push({ ...cell, result: await timed(cell, served, opened) });
  const check = `${server.gateway ? '' : 'before '}${name}: SIGTERM, exit 0, no process left, one line on stdout`;
  await other(results, check, () => (served instanceof Error ? Promise.reject(served) : stop(served)));
  if (opened instanceof Error || server.gateway) return;
  if (server.children) await other(results, `${name}: afterwards it has no process of a session left`, () => released(opened));
  await close(opened);
}

// other runs a check that is no cell of the matrix.
async function other(results, check, work) {
  const since = Date.now();
  const error = await work().then(() => '', (err) => err.message);
  say(`${error ? 'FAIL' : 'ok  '} ${check} ${seconds(since)} ${error}`);
  results.others.push({ check, error });
}

// literal runs the commands of the documentation as they are typed, npx included.
async function literal(results) {
  const everything = ['npx', '-y', '@modelcontextprotocol/server-everything'];
  const served = await serve('npx', ['--', ...everything], nodeHome).catch((err) => err);
  const inspect = async (args, want) => {
    if (served instanceof Error) throw served;
    const command = ['npx', '-y', '@modelcontextprotocol/inspector', '--cli', `${served.url}/mcp`, ...args];
    const log = logOf(`npx ${args[1]}`);
    const client = start(command, { cwd: nodeHome, log });
    const how = await endsWithin(client, cellLimit);
    if (how !== 'exit 0') throw new Error(`${how}: ${lastWords(log)}`);
    if (!client.out.includes(want)) throw new Error(`no ${want} in ${JSON.stringify(client.out.slice(0, 300))}`);
  };
  const behind = 'behind holdfast serve -- npx -y @modelcontextprotocol/server-everything';
  const cli = 'npx -y @modelcontextprotocol/inspector --cli http://127.0.0.1:PORT/mcp';
  const call = ['--method', 'tools/call', '--tool-name', 'echo', '--tool-arg', 'message=hello'];
  await other(results, `${cli} --method tools/list, ${behind}`, () => inspect(['--method', 'tools/list'], '"echo"'));
  await other(results, `${cli} ${call.join(' ')}, ${behind}`, () => inspect(call, 'Echo: hello'));
  const check = 'npx: SIGTERM, exit 0, no process left, one line on stdout';
  await other(results, check, () => (served instanceof Error ? Promise.reject(served) : stop(served)));
}

const results = { cells: [], others: [] };
for (const server of servers) await runServer(server, results);
await inTurns(network, (server) => runNetwork(server, results));
if (!only || only.test('npx')) await literal(results);

const outcomes = [...results.cells.map((cell) => cell.result), ...results.others];
const failed = outcomes.filter((outcome) => outcome.error).length;
if (!only) writeFileSync(path.join(here, '..', 'docs', 'interop.md'), document(results));
say(`all done after ${seconds(began)}`);
console.log(`${outcomes.length - failed} passed, ${failed} failed`);
process.exit(failed || outcomes.length === 0 ? 1 : 0);
