// What each server offers to the clients. A client gets the plan of its server as JSON in INTEROP_PLAN.

// One text that a careless re-encoding changes: scripts, an astral character,
// quotes, backslash, what encoding/json escapes, a line separator, a newline.
const text = 'naïve ✓ 漢字 🎈 "quoted" \\ <&> a\u2028b\nc';

// The tools of our own servers write the tag of a call down, for others to ask after it.
const own = (tag) => ({
  text,
  echo: { name: 'echo' },
  progress: { name: 'count', arguments: { steps: 10 }, count: 10, expect: 'counted to 10' },
  elicit: { name: 'ask', arguments: { tag }, answer: { name: 'Ada' }, expect: 'accepted: Ada' },
  cancel: { name: 'wait', arguments: { seconds: 30, tag } },
  counter: { name: 'cancelled', arguments: { tag }, expect: '1' },
  resource: 'memo://greeting',
  prompt: 'greet',
});

const everything = () => ({
  text,
  echo: { name: 'echo' },
  progress: {
    name: 'trigger-long-running-operation',
    arguments: { duration: 0.5, steps: 5 },
    count: 5,
    expect: 'Steps: 5',
  },
  elicit: { name: 'trigger-elicitation-request', arguments: {}, answer: { name: 'Ada' }, expect: 'Name: Ada' },
  cancel: { name: 'trigger-long-running-operation', arguments: { duration: 30, steps: 100 } },
  counter: { name: '', arguments: {} },
  resource: 'demo://resource/static/document/features.md',
  prompt: 'simple-prompt',
});

const form = { check: 'form', tool: 'ask', expect: 'accepted: {name}' };

// What tools ask, and what two clients answer: see clients/questions.mjs.
const questions = (tag) => ({
  questions: {
    tag,
    answers: [
      { name: 'Ada', color: 'green', model: 'Ada has a model' },
      { name: 'Grace', color: 'blue', model: 'Grace has another' },
    ],
    asking: [
      form,
      { check: 'two rounds', tool: 'ask_twice', expect: '{name} likes {color}' },
      { check: 'two at once', tool: 'ask_both', expect: '{name} likes {color}' },
      { check: 'sampling', tool: 'ask_model', expect: '{model}' },
    ],
    counter: { name: 'executed', expect: '1' },
  },
});

const checks = ['list', 'call', 'progress', 'elicitation', 'cancel', 'resources', 'prompts'];

// A plan is made for each cell, with a tag of its own.
export const plans = {
  own,
  everything,
  questions,
  short: (plan) => (tag) => ({ ...plan(tag), only: ['list', 'call'] }),
  // without leaves out some checks; limited and form make some, to see them fail: soon, where they would wait for something.
  without: (plan, some) => (tag) => ({ ...plan(tag), only: checks.filter((check) => !some.includes(check)) }),
  limited: (plan, some) => (tag) => ({ ...plan(tag), only: ['list', 'call', ...some], stepSeconds: 2 }),
  form: (tag) => ({ questions: { ...questions(tag).questions, asking: [form] }, stepSeconds: 2 }),
};
