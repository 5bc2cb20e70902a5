// Inspector's command line, one process for each step: inspector.mjs http|sse|stdio URL-or-command…
// INTEROP_ERA has the era to speak; without it Inspector is as it comes.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const stepLimit = 25_000; // ms
const modules = new URL('../node_modules/', import.meta.url);
const { version } = JSON.parse(readFileSync(new URL('@modelcontextprotocol/inspector/package.json', modules)));
const program = fileURLToPath(new URL('.bin/mcp-inspector', modules));
const [transport, ...target] = process.argv.slice(2);
const plan = JSON.parse(process.env.INTEROP_PLAN);
const era = process.env.INTEROP_ERA ? ['--protocol-era', process.env.INTEROP_ERA] : [];
// After -- nothing is taken for an option of Inspector itself.
const where = transport === 'stdio' ? ['--', ...target] : ['--transport', transport, '--server-url', target[0]];

// run makes one request and returns its result.
async function run(method, ...options) {
  const args = [program, '--cli', '--format', 'json', '--connect-timeout', '24000', '--method', method, ...options, ...era, ...where];
  try {
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: stepLimit, maxBuffer: 1 << 24 });
    const answer = JSON.parse(stdout);
    return answer.result ?? answer;
  } catch (err) {
    process.stderr.write(err.stderr ?? '');
    if (err.killed) throw new Error(`${method}: no answer within ${stepLimit / 1000} s`);
    const lines = err.stderr?.trim().split('\n') ?? [];
    throw new Error(lines.findLast((line) => line.startsWith('{"error"')) ?? lines.at(-1) ?? err.message);
  }
}

async function has(method, key, field, want) {
  const found = (await run(method))[key].map((one) => one[field]);
  if (!found.includes(want)) throw new Error(`no ${want} among ${found.length} ${key}`);
}

const basic = {
  list: () => has('tools/list', 'tools', 'name', plan.echo.name),
  call: async () => {
    const message = `${plan.text} ${transport} ${process.pid}`;
    const args = ['--tool-name', plan.echo.name, '--tool-args-json', JSON.stringify({ message })];
    const text = (await run('tools/call', ...args)).content[0].text;
    if (!text.includes(message)) throw new Error(`got ${JSON.stringify(text)}, want ${JSON.stringify(message)} in it`);
  },
};

const more = {
  resources: async () => {
    await has('resources/list', 'resources', 'uri', plan.resource);
    if (!(await run('resources/read', '--uri', plan.resource)).contents[0].text) throw new Error('empty');
  },
  prompts: () => has('prompts/list', 'prompts', 'name', plan.prompt),
};

// A run of Inspector takes a second or two, and these do not depend on the transport.
const checks = transport === 'http' ? { ...basic, ...more } : basic;
const report = { client: '@modelcontextprotocol/inspector', version, transport, checks: {} };
try {
  const started = await run('initialize');
  report.negotiated = started.protocolVersion ?? '';
  report.server = started.serverInfo?.name ?? '';
  for (const [name, check] of Object.entries(checks)) {
    if (plan.only && !plan.only.includes(name)) continue;
    report.checks[name] = await check().then(() => 'ok', (err) => `FAIL ${err.message}`);
  }
} catch (err) {
  report.error = err.message;
}
console.log(JSON.stringify(report));
process.exit(report.error || Object.values(report.checks).some((outcome) => outcome !== 'ok') ? 1 : 0);
