// Cells in which tools ask: each of two clients makes each call at the same time as the other, and answers in its own way.

const askedLimit = 10_000; // ms

// Gathering is where the clients of one step wait for each other: none answers
// before all are being asked, so that whatever mixes them up has its chance.
class Gathering {
  constructor(clients) {
    this.clients = clients;
  }

  step() {
    this.here = new Set();
    this.full = Promise.withResolvers();
  }

  async arrive(who) {
    this.here.add(who);
    if (this.here.size === this.clients) this.full.resolve();
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('only one client was asked')), askedLimit);
    });
    await Promise.race([this.full.promise, late]).finally(() => clearTimeout(timer));
  }
}

// Answerer answers what one client is asked.
export class Answerer {
  constructor(answers, all) {
    this.answers = answers;
    this.all = all;
  }

  // form is the result for an elicitation: an answer for each field of its schema.
  async form({ requestedSchema }) {
    await this.all?.arrive(this);
    const asked = Object.entries(this.answers).filter(([name]) => name in requestedSchema.properties);
    return { action: 'accept', content: Object.fromEntries(asked) };
  }

  // model is the result for a sampling.
  async model() {
    await this.all?.arrive(this);
    const content = { type: 'text', text: `${this.answers.model}` };
    return { role: 'assistant', model: 'interop', stopReason: 'endTurn', content };
  }
}

// answerers makes one for each client of the plan.
export function answerers(plan) {
  if (!plan.questions) return [new Answerer(plan.elicit.answer)];
  const all = new Gathering(plan.questions.answers.length);
  return plan.questions.answers.map((answers) => new Answerer(answers, all));
}

// asking makes a check of each tool of the plan that asks.
export function asking(peers, { tag, asking, counter }) {
  const call = async (peer, i, { check, tool, expect }) => {
    const { answers } = peer.answerer;
    const named = { tag: `${tag}-${check}-${i}` };
    const want = expect.replaceAll(/\{(\w+)\}/g, (_, field) => answers[field]);
    const text = await peer.call(tool, named, {});
    if (!text.includes(want)) throw new Error(`client ${i}: got ${JSON.stringify(text)}, want ${want} in it`);
    const count = await peer.call(counter.name, named, {});
    if (count !== counter.expect) throw new Error(`client ${i}: the server counts ${count} executions`);
  };
  const both = async (question) => {
    peers[0].answerer.all.step();
    const outcomes = await Promise.allSettled(peers.map((peer, i) => call(peer, i, question)));
    const reasons = outcomes.filter((one) => one.status === 'rejected').map((one) => one.reason.message);
    if (reasons.length > 0) throw new Error(reasons.join('; '));
  };
  return Object.fromEntries(asking.map((question) => [question.check, () => both(question)]));
}
