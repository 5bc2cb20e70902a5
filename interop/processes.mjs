// Child processes in groups of their own, with time limits, and a way to find what they left behind.
import { spawn } from 'node:child_process';
import { existsSync, openSync, closeSync, readdirSync, readFileSync } from 'node:fs';

const running = new Set();

// start runs a command in a process group of its own. Its stderr goes to the
// file log, its stdout is collected in out; ended resolves to how it ended.
export function start([command, ...args], { env = {}, cwd, log }) {
  const stderr = openSync(log, 'a');
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, ...env },
    detached: true,
    stdio: ['ignore', 'pipe', stderr],
  });
  closeSync(stderr);
  const self = { pid: child.pid, out: '', child, over: false };
  child.stdout.setEncoding('utf8').on('data', (text) => (self.out += text));
  self.ended = new Promise((resolve) => {
    child.on('error', (err) => resolve(`cannot start: ${err.message}`));
    child.on('close', (code, signal) => resolve(signal ? `ended by ${signal}` : `exit ${code}`));
  }).then((how) => {
    self.over = true;
    running.delete(self);
    return how;
  });
  running.add(self);
  return self;
}

// endsWithin waits for a process, at most for ms, and then kills its group; it tells how the process ended.
export async function endsWithin(self, ms) {
  const how = await before(self.ended, ms);
  if (how !== undefined) return how;
  kill(self);
  await before(self.ended, 2_000);
  return `killed after ${ms / 1000} s`;
}

// before resolves to what promise resolves to, or to undefined after ms.
export function before(promise, ms) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function kill(self) {
  try {
    process.kill(-self.pid, 'SIGKILL');
  } catch {
    // It ended in the meantime.
  }
}

// killAll ends every process that is still running.
export function killAll() {
  running.forEach(kill);
}

// canFind tells whether marked works on this system.
export const canFind = existsSync('/proc/self/environ');

// marked lists the processes that have mark in their environment, wherever they moved in the process tree.
export function marked(mark) {
  if (!canFind) return [];
  const found = [];
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (!readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark)) continue;
      const command = readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ').trim();
      if (command) found.push({ pid: Number(pid), command });
    } catch {
      // It ended in the meantime, or belongs to somebody else.
    }
  }
  return found;
}

// leftovers waits up to ms until no process carries mark, ends those that still do and tells which they were.
export async function leftovers(mark, ms) {
  const deadline = Date.now() + ms;
  let left = marked(mark);
  while (left.length > 0 && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    left = marked(mark);
  }
  for (const { pid } of left) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It ended in the meantime.
    }
  }
  return left.map(({ pid, command }) => `${pid} ${command.slice(0, 60)}`).join(', ');
}
