// A server on stdio around node's event loop, whose tools block it, or do not.
import { spawn, spawnSync } from 'node:child_process'
import { closeSync, writeSync } from 'node:fs'
import { get } from 'node:http'
import { createInterface } from 'node:readline'
import { setImmediate, setTimeout } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'

let executions = 0

const send = (message) => writeSync(1, JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')

const burn = (seconds) => {
  for (const end = performance.now() + seconds * 1000; performance.now() < end;);
}

const tools = {
  cpu: async ({ seconds }) => burn(seconds),
  cpu_with_progress: async ({ seconds }, progress) => {
    for (const end = performance.now() + seconds * 1000; performance.now() < end;) {
      burn(0.2)
      progress()
      await setImmediate()
    }
  },
  cpu_in_worker: ({ seconds }) =>
    new Promise((resolve) => {
      const code = `for (const end = performance.now() + ${seconds * 1000}; performance.now() < end;);`
      new Worker(code, { eval: true }).on('exit', () => resolve())
    }),
  sleep: ({ seconds }) => setTimeout(seconds * 1000),
  process: ({ seconds }) => new Promise((resolve) => spawn('sleep', [String(seconds)], { stdio: 'ignore' }).on('exit', () => resolve())),
  process_blocking: async ({ seconds }) => void spawnSync('sleep', [String(seconds)]),
  http: ({ url }) => new Promise((resolve, reject) => get(url, (reply) => reply.on('end', resolve).resume()).on('error', reject)),
  deadlock: async () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0),
  never: () => new Promise(() => {}),
  exit: async () => process.exit(3),
  close_stdout: async ({ seconds }) => {
    closeSync(1)
    await setTimeout(seconds * 1000)
  },
  // Needs --expose-gc.
  collect_garbage: async ({ seconds }) => {
    const live = Array.from({ length: 300_000 }, (_, i) => ({ i }))
    let longest = 0
    for (const end = performance.now() + seconds * 1000; performance.now() < end;) {
      const begin = performance.now()
      gc()
      longest = Math.max(longest, performance.now() - begin)
      await setImmediate()
    }
    return `${live.length} objects, longest pause ${longest.toFixed(0)} ms`
  },
}

async function call({ id, params }) {
  executions++
  const progress = () =>
    send({ method: 'notifications/progress', params: { progressToken: params._meta?.progressToken, progress: performance.now() } })
  const note = (await tools[params.name](params.arguments, progress)) ?? ''
  const text = JSON.stringify({ executions, note: String(note) })
  send({ id, result: { content: [{ type: 'text', text }] } })
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line)
  switch (message.method) {
    case 'initialize': {
      const { protocolVersion } = message.params
      send({ id: message.id, result: { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'loop', version: '1' } } })
      break
    }
    case 'ping':
      send({ id: message.id, result: {} })
      break
    case 'tools/call':
      call(message)
  }
})
