// One server on the network, one gateway before one server, and one client: how each is started, judged and ended.
import { randomInt, randomUUID } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { cache, holdfast, logs } from './peers.mjs';
import { before as soon, endsWithin, leftovers, marked, start } from './processes.mjs';
import { title } from './table.mjs';

export const cellLimit = 60_000; // ms
const readyLimit = 30_000; // ms
const stopLimit = 20_000; // ms; more than --drain and --stop-timeout together

const run = randomUUID();
const ledger = path.join(logs, 'ledger');
rmSync(ledger, { force: true });

export const seconds = (since) => `${((Date.now() - since) / 1000).toFixed(1)} s`;
export const logOf = (name) => path.join(logs, `${name.replaceAll(/[^\w.-]+/g, '_')}.log`);
export const lastWords = (log) => readFileSync(log, 'utf8').trim().split('\n').at(-1).slice(0, 300);

// serve starts a gateway before what is said as on its command line, and waits for its ready line.
export async function serve(name, before, cwd) {
  const log = logOf(`serve ${name}`);
  rmSync(log, { force: true });
  const mark = `INTEROP_MARK=${run}/${name}/`;
  const env = { INTEROP_MARK: `${run}/${name}/`, INTEROP_LEDGER: ledger };
  const args = ['serve', '--listen', '127.0.0.1:0', ...before];
  const gateway = start([holdfast, ...args], { env, cwd, log });
  for (const deadline = Date.now() + readyLimit; !gateway.out.includes('\n'); ) {
    const how = await soon(gateway.ended, 50);
    if (how) throw new Error(`holdfast serve: ${how}: ${lastWords(log)}`);
    if (Date.now() > deadline) {
      await endsWithin(gateway, 0);
      throw new Error(`holdfast serve: not ready after ${readyLimit / 1000} s: ${lastWords(log)}`);
    }
  }
  const [, url] = /^listening on (http:\/\/\S+)\n$/.exec(gateway.out) ?? [];
  if (!url) throw new Error(`holdfast serve: the ready line is ${JSON.stringify(gateway.out)}`);
  return { ...gateway, gateway, mark, url, ready: gateway.out };
}

// stop ends a gateway as a service manager does, and fails unless it goes
// cleanly, with all its children, having written nothing but its ready line.
export async function stop(served) {
  const since = Date.now();
  if (served.gateway.over) throw new Error(`it had ended before: ${await served.gateway.ended}`);
  process.kill(served.pid, 'SIGTERM');
  const how = await endsWithin(served.gateway, stopLimit);
  const left = await leftovers(served.mark, 2_000);
  if (how !== 'exit 0') throw new Error(`after SIGTERM: ${how}`);
  if (left) throw new Error(`processes left: ${left}`);
  if (served.gateway.out !== served.ready) throw new Error(`stdout has ${JSON.stringify(served.gateway.out)}`);
  return seconds(since);
}

// freePort is a port that nobody listens on, outside the range that connections get theirs from.
async function freePort() {
  for (;;) {
    const port = randomInt(20_000, 30_000);
    const probe = net.createServer().listen(port);
    const free = await new Promise((resolve) => {
      probe.once('listening', () => probe.close(() => resolve(true))).once('error', () => resolve(false));
    });
    if (free) return port;
  }
}

const accepts = (port) =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    const end = (outcome) => {
      socket.destroy();
      resolve(outcome);
    };
    socket.once('connect', () => end(true)).once('error', () => end(false));
  });

// open starts a server that is on the network and waits until it takes connections.
export async function open(server, name) {
  if (server.gateway) {
    const served = await serve(name, ['--', ...server.gateway.command], cache);
    return { ...served, url: served.url + server.path };
  }
  const log = logOf(`open ${name}`);
  rmSync(log, { force: true });
  const port = await freePort();
  const { command, env = {} } = server.listen(port);
  const mark = `INTEROP_MARK=${run}/server ${name}/`;
  const peer = start(command, {
    cwd: cache,
    env: { INTEROP_MARK: `${run}/server ${name}/`, INTEROP_LEDGER: ledger, ...env },
    log,
  });
  for (const deadline = Date.now() + readyLimit; !(await accepts(port)); ) {
    const how = await soon(peer.ended, 50);
    if (how) throw new Error(`the server: ${how}: ${lastWords(log)}`);
    if (Date.now() > deadline) throw new Error(`the server does not listen after ${readyLimit / 1000} s`);
  }
  return { peer, mark, url: `http://127.0.0.1:${port}${server.path}`, processes: marked(mark).length };
}

// released fails unless a server that starts a process for each of its sessions has as many as in the beginning.
export async function released(opened) {
  let more = 0;
  for (const deadline = Date.now() + 10_000; Date.now() < deadline; ) {
    more = marked(opened.mark).length - opened.processes;
    if (more <= 0) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${more} processes of sessions that nobody ended`);
}

// close ends a server that is on the network. How it takes that is its own affair.
export async function close({ peer, mark }) {
  if (!peer.over) process.kill(peer.pid, 'SIGTERM');
  await endsWithin(peer, 3_000);
  await leftovers(mark, 0);
}

// judge says what is wrong with a cell that shows what a server cannot do: it has to fail in that, and in nothing else.
function judge(cell, { checks, error }) {
  const wrong = Object.entries(checks).filter(([check, outcome]) => (outcome === 'ok') === Object.hasOwn(cell.limits, check));
  const reasons = wrong.map(([check, outcome]) => `${check}: ${outcome}`);
  return Object.keys(checks).length > 0 ? reasons.join('; ') : error;
}

// runClient runs one client and returns its report, with a reason in error if a check failed.
async function runClient(cell, target, mark) {
  const log = logOf(title(cell));
  rmSync(log, { force: true });
  const env = { INTEROP_PLAN: JSON.stringify(cell.plan(randomUUID())), ...cell.client.env };
  const client = start([...cell.client.command, cell.transport, ...target], { env, cwd: cache, log });
  const how = await endsWithin(client, cellLimit);
  let report;
  try {
    report = JSON.parse(client.out);
  } catch {
    return { checks: {}, error: `${how} without a report: ${lastWords(log)}` };
  }
  if (cell.limits) return { ...report, error: judge(cell, report) };
  const failed = Object.entries(report.checks).filter(([, outcome]) => outcome !== 'ok');
  const reasons = failed.map(([check, outcome]) => `${check}: ${outcome.replace(/^FAIL /, '')}`);
  if (report.error) reasons.push(report.error);
  if (report.version !== cell.client.version) reasons.push(`the client is version ${report.version}`);
  const { negotiated } = cell.client;
  if (report.negotiated !== negotiated) reasons.push(`negotiated ${report.negotiated || 'nothing'}, not ${negotiated}`);
  if (how !== 'exit 0' && reasons.length === 0) reasons.push(how);
  if (mark) {
    const left = await leftovers(mark, 12_000);
    if (left) reasons.push(`processes left after the client ended: ${left}`);
  }
  return { ...report, error: reasons.join('; ') };
}

// stdio is the command that starts before, by way of env, because clients start a server with a few variables only.
const stdio = (mark, before) => ['/usr/bin/env', mark, `INTEROP_LEDGER=${ledger}`, ...before];

// runCell runs one cell; what a client starts on stdio, only for itself.
export async function runCell(cell, served, opened) {
  const failed = [served, opened].find((one) => one instanceof Error);
  const mark = `INTEROP_MARK=${run}/${title(cell)}/`;
  if (cell.between) {
    if (opened instanceof Error) return { checks: {}, error: opened.message };
    return runClient(cell, stdio(mark, cell.between.command(opened.url)), mark);
  }
  if (cell.transport === 'stdio') {
    const before = [holdfast, 'serve', '--transport', 'stdio', '--', ...cell.server.command];
    return runClient(cell, stdio(mark, before), mark);
  }
  if (failed) return { checks: {}, error: failed.message };
  if (cell.limits) return runClient(cell, [opened.url]);
  return runClient(cell, [served.url + (cell.transport === 'http' ? '/mcp' : '/sse')]);
}
