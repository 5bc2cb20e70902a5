// The checks that every JavaScript client makes, and the report line that it prints.
import { answerers, asking } from './questions.mjs';

const stepLimit = 15_000; // ms, unless the plan says; a step that hangs ends early enough that its cell still reports it

// drive connects a peer, or as many as the plan in INTEROP_PLAN wants, makes every check of it and prints the report.
// make(kind, target, answerer) returns a peer: transport, connect(), negotiated(), server(), list(what), read(uri),
// call(name, arguments, {signal, onprogress}) with the text of the result, close().
export async function drive(client, version, make) {
  const [transport, ...target] = process.argv.slice(2);
  const plan = JSON.parse(process.env.INTEROP_PLAN);
  const limit = plan.stepSeconds ? plan.stepSeconds * 1000 : stepLimit;
  const report = { client, version, transport, negotiated: '', server: '', checks: {} };
  try {
    const peers = [];
    for (const answerer of answerers(plan)) {
      const peer = await make(transport, target, answerer);
      await within(peer.connect(), 'connect', 40_000);
      peers.push(Object.assign(peer, { answerer, arrived: tap(peer.transport) }));
    }
    report.negotiated = peers[0].negotiated() ?? '';
    report.server = peers[0].server() ?? '';
    const wanted = plan.questions ? asking(peers, plan.questions) : checks(peers[0], plan, transport);
    for (const [name, check] of Object.entries(wanted)) {
      if (plan.only && !plan.only.includes(name)) continue;
      report.checks[name] = await within(check(), name, limit).then(() => 'ok', (err) => `FAIL ${err.message ?? err}`);
    }
    for (const peer of peers) await within(peer.close(), 'close');
  } catch (err) {
    report.error = `${err.message ?? err}`;
  }
  console.log(JSON.stringify(report));
  const failed = report.error || Object.values(report.checks).some((outcome) => outcome !== 'ok');
  process.exit(failed ? 1 : 0);
}

// within fails if work takes longer than limit.
function within(work, what, limit = stepLimit) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: no answer within ${limit / 1000} s`)), limit);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

function contains(text, want) {
  if (!text.includes(want)) throw new Error(`got ${JSON.stringify(text)}, want ${JSON.stringify(want)} in it`);
}

function checks(peer, plan, transport) {
  const message = `${plan.text} ${transport} ${process.pid}`;
  const echo = async () => contains(await peer.call(plan.echo.name, { message }, {}), message);
  const has = async (what, name) => {
    const names = await peer.list(what);
    if (!names.includes(name)) throw new Error(`no ${name} among ${names.length} ${what}`);
  };
  return {
    list: () => has('tools', plan.echo.name),
    call: echo,
    progress: () => progress(peer, plan),
    elicitation: async () => contains(await peer.call(plan.elicit.name, plan.elicit.arguments, {}), plan.elicit.expect),
    cancel: () => cancel(peer, plan, echo),
    resources: async () => {
      await has('resources', plan.resource);
      if (!(await peer.read(plan.resource))) throw new Error(`${plan.resource} is empty`);
    },
    prompts: () => has('prompts', plan.prompt),
  };
}

// tap keeps the progress of each notification that arrives at the transport.
function tap(transport) {
  const arrived = [];
  const hand = transport.onmessage;
  transport.onmessage = (message, extra) => {
    if (message.method === 'notifications/progress') arrived.push(message.params.progress);
    hand(message, extra);
  };
  return arrived;
}

// progress wants every notification, in order. Both SDKs hand on a notification
// one microtask later, but an answer at once: of the notifications that come in
// one read with the answer the callback hears nothing. So they are looked for
// where they arrive, and the callback has to have heard them from the first on.
async function progress(peer, plan) {
  const seen = [];
  const onprogress = (note) => seen.push(note.progress);
  peer.arrived.length = 0;
  contains(await peer.call(plan.progress.name, plan.progress.arguments, { onprogress }), plan.progress.expect);
  const want = Array.from({ length: plan.progress.count }, (_, i) => i + 1);
  if (peer.arrived.join() !== want.join()) throw new Error(`progress ${peer.arrived.join()}, want ${want.join()}`);
  const heard = want.slice(0, seen.length);
  if (seen.join() !== heard.join()) throw new Error(`the callback saw ${seen.join()}, want ${want.join()}`);
}

// cancel ends a call once its first progress notification shows that the server runs it.
async function cancel(peer, plan, echo) {
  const abort = new AbortController();
  const options = { signal: abort.signal, onprogress: () => abort.abort(new Error('the check cancels')) };
  const ended = await peer.call(plan.cancel.name, plan.cancel.arguments, options).then(() => false, (err) => err);
  if (!ended) throw new Error('the cancelled call has a result');
  if (!abort.signal.aborted) throw new Error(`the call ended before it was cancelled: ${ended.message}`);
  if (!plan.counter.name) return echo();
  for (const deadline = Date.now() + 10_000; ; ) {
    const count = await peer.call(plan.counter.name, plan.counter.arguments, {});
    if (count === plan.counter.expect) return;
    if (Date.now() > deadline) throw new Error(`the server counts ${count} cancelled calls`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// texts joins the text parts of a tool result, or throws its error.
export function texts(result) {
  const text = result.content.map((part) => part.text ?? '').join('');
  if (result.isError) throw new Error(`tool error: ${text}`);
  return text;
}
