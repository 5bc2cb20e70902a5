// One gateway before one server, and one client before a gateway: how each is started, judged and ended.
import { randomUUID } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { cache, holdfast, logs } from './peers.mjs';
import { before, endsWithin, leftovers, start } from './processes.mjs';
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

// serve starts a gateway before command and waits for its ready line.
export async function serve(name, command, cwd) {
  const log = logOf(`serve ${name}`);
  rmSync(log, { force: true });
  const mark = `INTEROP_MARK=${run}/${name}/`;
  const env = { INTEROP_MARK: `${run}/${name}/`, INTEROP_LEDGER: ledger };
  const args = ['serve', '--listen', '127.0.0.1:0', '--', ...command];
  const gateway = start([holdfast, ...args], { env, cwd, log });
  for (const deadline = Date.now() + readyLimit; !gateway.out.includes('\n'); ) {
    const how = await before(gateway.ended, 50);
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

// runCell runs one cell, over stdio with a gateway of its own.
export async function runCell(cell, served) {
  if (cell.transport === 'stdio') {
    const name = `INTEROP_MARK=${run}/${title(cell)}/`;
    // By way of env, because clients start a server with a few variables only.
    const set = ['/usr/bin/env', name, `INTEROP_LEDGER=${ledger}`];
    const target = [...set, holdfast, 'serve', '--transport', 'stdio', '--', ...cell.server.command];
    return runClient(cell, target, name);
  }
  if (served instanceof Error) return { checks: {}, error: served.message };
  return runClient(cell, [served.url + (cell.transport === 'http' ? '/mcp' : '/sse')]);
}
