// The page in a browser, against a server that a test of the command has started. The test does what is asked of it by `need`.
// `node tests/browser.mjs URL CHROMIUM all|brief [SCREENSHOTS]`; what is brief does not look for what is the same on every store.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [url, executablePath, which, pictures] = process.argv.slice(2);
// `FERRATA_STORY=PATTERN` runs only the stories whose names match, and goes on after one that failed.
const only = process.env.FERRATA_STORY ?? '';
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const began = Date.now();

async function need(what) {
  console.log(`need ${what}`);
  const { value } = await lines.next();
  if (value !== 'ok' && value !== 'no') throw new Error(`the test could not do ${what}: ${value}`);
  return value === 'ok';
}

function is(found, wanted, what) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);
}

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
// Whatever the page says of itself: nothing of it is in order.
const said = [];
let away = false;
// A run that a story looks for though there is none: the page goes on asking for it until it is left, and is told so as often.
const absent = /\/default\/none(\/|\?|$)/;
async function open(colorScheme = 'light', width = 1280) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(Number(process.env.FERRATA_PATIENCE ?? 120_000));
  page.on('console', (message) => { if (!away && !absent.test(message.location().url) && ['error', 'warning'].includes(message.type())) said.push(`${page.url()}: ${message.text()}`); });
  page.on('pageerror', (error) => said.push(`${page.url()}: ${error.message}`));
  page.on('dialog', (dialog) => { said.push(`${page.url()}: a dialog says ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(url)) said.push(`${page.url()}: asks for ${request.url()}`); });
  return page;
}
async function sound(page, what) {
  if (which === 'brief') return;
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'] }));
  is(violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target.join(' ')} ${node.failureSummary}`).join('; ')}`), [], `axe on ${what}`);
}
const at = (hash) => `${url}#/${hash}`;
const heading = (page, name) => page.getByRole('heading', { name, level: 1 }).waitFor();
const status = (page, word) => page.locator('.runhead .status', { hasText: word }).waitFor();

// Each is a story of its own; the order matters only for what runs are left.
const stories = {
  async 'runs are listed and found with the keyboard alone'(page) {
    await page.goto(at('runs'));
    await page.getByRole('link', { name: 'pay-3', exact: true }).waitFor();
    await page.locator('td.what', { hasText: 'failed at send@1: the bank is closed' }).first().waitFor();
    await sound(page, 'runs');
    await page.keyboard.press('/');
    await page.keyboard.type('pay-3');
    await page.waitForFunction(() => location.hash.includes('q=pay-3') && document.querySelectorAll('table.runs tbody tr').length === 1);
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await heading(page, 'pay-3');
    await page.goBack();
    await page.getByRole('link', { name: 'pay-3', exact: true }).waitFor();
    await page.goto(at('runs'));
    await page.getByRole('button', { name: 'Failures by cause' }).click();
    await page.getByRole('heading', { name: /pay · send/ }).waitFor();
  },

  async 'a failed run opens at what failed, and time goes back'(page) {
    await page.goto(at('run/default/pay-3'));
    await status(page, 'failed');
    await page.locator('.panel h2', { hasText: 'send' }).waitFor();
    await page.locator('.banner.failed', { hasText: 'the bank is closed' }).waitFor();
    await sound(page, 'a run');
    const node = page.getByRole('button', { name: 'send, failed' });
    await node.waitFor();
    const before = await node.boundingBox();
    await page.keyboard.press('ArrowLeft');
    await page.waitForFunction(() => /at=\d/.test(location.hash));
    await page.getByRole('button', { name: 'send, running' }).waitFor();
    is(await page.getByRole('button', { name: 'send, running' }).boundingBox(), before, 'the picture has not moved');
    await page.getByRole('slider').press('Home');
    await page.getByText('record 0 of').waitFor();
    await page.getByRole('tab', { name: 'State' }).click();
    await page.locator('.tree .key', { hasText: 'amount' }).waitFor();
    await page.keyboard.press('l');
    await status(page, 'failed');
    await page.getByRole('button', { name: 'Difference' }).click();
    await page.getByRole('button', { name: 'Compare with…' }).click();
    await page.getByLabel(/Record, or RUN/).fill('pay-1 0');
    await page.getByRole('button', { name: 'Compare', exact: true }).click();
    await page.locator('.diff .where', { hasText: '/amount' }).waitFor();
    await page.getByRole('tab', { name: 'Records' }).click();
    await page.getByText(/failed after 1 attempt/).first().waitFor();
    await page.getByRole('tab', { name: 'Children & forks' }).click();
    await page.getByRole('heading', { name: /^Forks/ }).waitFor();
  },

  async 'a run that another process drives is seen while it goes on'(page) {
    await need('start');
    await page.goto(at('run/default/live'));
    await status(page, 'in progress');
    await page.getByRole('button', { name: 'work, running' }).waitFor();
    await page.locator('.liveness.on').waitFor();
    const other = await page.context().newPage();
    await other.goto(at('run/default/live'));
    await status(other, 'in progress');
    await need('finish');
    const since = Date.now();
    await status(page, 'completed');
    console.log(`note an end is seen after ${Date.now() - since} ms`);
    await status(other, 'completed');
    await other.close();
  },

  async 'a question is answered in the inbox'(page) {
    await page.goto(at('questions'));
    const card = page.getByRole('article').filter({ has: page.getByRole('link', { name: 'pay-2', exact: true }) });
    const form = card.getByRole('form', { name: 'Question approve@1:gate' });
    await form.getByRole('button', { name: 'Answer' }).click();
    await form.getByText('choose one').waitFor();
    await sound(page, 'questions');
    await form.getByRole('radio', { name: 'Yes' }).focus();
    await page.keyboard.press('Space');
    await page.keyboard.press('Enter');
    await card.waitFor({ state: 'detached' });
    await page.goto(at('run/default/pay-2'));
    await status(page, 'completed');
  },

  async 'an inbox that has not looked at every run says so, and looks further'(page) {
    const asked = [];
    await page.route('**/api/v1/questions*', async (route) => {
      const cursor = new URL(route.request().url()).searchParams.get('cursor');
      asked.push(cursor);
      const answer = cursor ? { items: [], next: null, looked_at: 2, unread: 0 } : { items: [], next: '1.more', looked_at: 200, unread: 100 };
      await route.fulfill({ json: { now: Date.now(), unreadable: { count: 0, items: [] }, ...answer } });
    });
    await page.goto(at('questions'));
    await page.getByText('No open run that was read waits for an answer. 100 open runs were read.').waitFor();
    await page.getByText('100 runs are read next').waitFor();
    await sound(page, 'an inbox with more');
    await page.getByRole('button', { name: 'Read more runs' }).click();
    await page.getByText('102 open runs were read').waitFor();
    is(asked.includes('1.more'), true, 'the next page is asked for');
    is(await page.getByRole('button', { name: 'Read more runs' }).count(), 0, 'there is no further one');
  },

  async 'an inbox of runs that cannot be read does not say that nobody asks'(page) {
    const why = 'the record is encrypted with the key `a`; give this process its keys';
    const items = ['x', 'y', 'z'].map((id) => ({ run: { tenant: 'default', id }, why }));
    await page.route('**/api/v1/questions*', (route) => route.fulfill({ json: { now: Date.now(), items: [], next: null, looked_at: 3, unread: 0, unreadable: { count: 3, items } } }));
    await page.goto(at('questions'));
    await page.getByRole('alert').filter({ hasText: '3 runs cannot be read' }).filter({ hasText: 'FERRATA_KEYS' }).waitFor();
    is(await page.getByText('No run waits for an answer').count(), 0, 'it is not known whether one asks');
    await sound(page, 'an inbox of runs that cannot be read');
  },

  async 'a question of a run that goes on between two pages of the inbox is shown once'(page) {
    const item = { run: { tenant: 'default', id: 'moves', workflow: 'pay', updated: Date.now() }, question: { id: 'sure@1:gate', node: 'sure', visit: 1, text: '"Sure?"', expects: 'bool', schema: { type: 'boolean' } } };
    await page.route('**/api/v1/questions*', (route) => {
      const next = new URL(route.request().url()).searchParams.get('cursor') ? null : '1.more';
      return route.fulfill({ json: { now: Date.now(), items: [item], next, looked_at: 200, unread: 0, unreadable: { count: 0, items: [] } } });
    });
    await page.goto(at('questions'));
    const form = page.getByRole('form', { name: 'Question sure@1:gate' });
    await form.waitFor();
    await page.getByRole('button', { name: 'Read more runs' }).click();
    await page.getByRole('button', { name: 'Read more runs' }).waitFor({ state: 'detached' });
    is(await form.count(), 1, 'it is there once');
  },

  async 'what waits for ever is shown in the inbox and the fleet'(page) {
    await page.goto(at('questions'));
    await page.getByRole('form', { name: 'Question which@1:gate of ever' }).getByText('until never').waitFor();
    await page.goto(at('fleet'));
    await page.getByRole('listitem').filter({ has: page.getByRole('link', { name: 'asleep', exact: true }) }).getByText('never').waitFor();
    await page.goto(at('run/default/asleep'));
    await page.locator('.banner', { hasText: 'never' }).waitFor();
  },

  async 'no digit of what is said to a run is lost'(page) {
    await page.goto(at('run/default/ever'));
    const form = page.getByRole('form', { name: 'Question which@1:gate' });
    is((await form.getByRole('textbox', { name: 'Answer' }).inputValue()).includes('12345678901234567'), true, 'the form begins with all digits of the default');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    const dialog = page.getByRole('dialog');
    const send = async (message, body) => {
      await dialog.getByLabel('Message').fill(message);
      const posted = page.waitForRequest((request) => request.method() === 'POST');
      await dialog.getByRole('button', { name: 'Send a message' }).click();
      is((await posted).postData(), body, 'what is sent is what was written');
      await dialog.waitFor({ state: 'detached' });
    };
    await send('{"order":12345678901234567}', '{"message":{"order":12345678901234567}}');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await send('order 12345678901234567', '{"message":"order 12345678901234567"}');
    await form.getByRole('button', { name: 'Answer' }).click();
    await status(page, 'completed');
    await page.goto(at('run/default/ever?tab=state'));
    await page.getByText('{"order":12345678901234567}').waitFor();
  },

  async 'a failed run is forked with another state, and the fork goes on'(page) {
    await page.goto(at('run/default/pay-3'));
    await status(page, 'failed');
    await page.getByRole('slider').press('Home');
    await page.getByText('record 0 of').waitFor();
    await page.keyboard.press('f');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Id of the new run').fill('again');
    await dialog.getByLabel('Change a channel').selectOption('amount');
    await dialog.getByRole('textbox', { name: 'amount' }).fill('7');
    // What came behind the place is not shown there, and may be done again.
    await dialog.getByText(/: check, send/).waitFor();
    await dialog.getByText('ferrata fork pay-3 0 --id again --set amount=7 --yes').waitFor();
    await sound(page, 'a dialog');
    const fork = dialog.getByRole('button', { name: 'Fork and go there' });
    is(await fork.isDisabled(), true, 'it takes a yes');
    await dialog.getByLabel('They may').check();
    await fork.click();
    await heading(page, 'again');
    await status(page, 'completed');
    await page.getByText('forked from').waitFor();
    // At the newest record nothing is done again, unless the fork begins elsewhere.
    await page.goto(at('run/default/pay-1'));
    await status(page, 'completed');
    await page.keyboard.press('f');
    await dialog.getByText('ferrata fork pay-1').waitFor();
    is(await dialog.getByLabel('They may').count(), 0, 'nothing came behind the newest record');
    await dialog.getByLabel('Begin at').selectOption('send');
    await dialog.getByLabel('They may').waitFor();
    await dialog.getByText(/--start-at send --yes/).waitFor();
    is(await fork.isDisabled(), true, 'it takes a yes, too');
  },

  async 'a fork asks again what it may do again when the store was away'(page) {
    // It is away until the page has said so: how long an alert stands is no matter of the test.
    let asked = 0;
    let gone = true;
    away = true;
    await page.route('**/repeats*', (route) => {
      asked += 1;
      return gone ? route.fulfill({ status: 503, json: { code: 'UNAVAILABLE', message: 'the store is away' } }) : route.continue();
    });
    await page.goto(at('run/default/pay-1'));
    await status(page, 'completed');
    await page.keyboard.press('f');
    const dialog = page.getByRole('dialog');
    const fork = dialog.getByRole('button', { name: 'Fork and go there' });
    await dialog.getByRole('alert').filter({ hasText: 'the store is away' }).waitFor();
    is(await fork.isDisabled(), true, 'what is not known may be a second payment');
    const before = asked;
    gone = false;
    await dialog.getByRole('alert').waitFor({ state: 'detached' });
    is([asked > before, await fork.isDisabled()], [true, false], 'it is asked once more, and known then');
    away = false;
  },

  async 'what must not happen is refused where it is asked for'(page) {
    await page.goto(at('run/default/pay-3'));
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click();
    // It fails again: the bank is still closed.
    await page.getByText(/retried it/).or(page.locator('.runhead .status', { hasText: 'failed' })).first().waitFor();
    await page.goto(at('run/default/none'));
    await page.getByText('cannot find the run default/none').waitFor();
  },

  async 'queues are shown, and a run in a line says how many are before it'(page) {
    await page.goto(at('fleet'));
    const mail = page.getByRole('article', { name: 'Queue mail' });
    await mail.getByText('1 of 1 held').waitFor();
    await mail.getByText('2 wait').waitFor();
    await page.getByRole('article', { name: 'Queue providers' }).getByText('paused: the provider is down').waitFor();
    await sound(page, 'queues');
    await mail.getByRole('link', { name: 'letter-3' }).click();
    await heading(page, 'letter-3');
    await page.locator('.banner.waiting', { hasText: 'waits for a slot of queue mail (1 ahead, 1 of 1 slot held)' }).waitFor();
    is(await page.locator('.banner').count(), 1, 'it is said once why it stands still');
    await page.goto(at('run/default/letter-1'));
    await page.getByText('The run holds a slot of the queue mail').waitFor();
  },

  async 'a run that is unpaused before its turn is warned of, and the page says one thing'(page) {
    await page.goto(at('run/default/letter-2'));
    await page.getByRole('button', { name: 'Unpause' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('alert').filter({ hasText: 'it jumps the queue' }).waitFor();
    await sound(page, 'a warning');
    await dialog.getByRole('button', { name: 'Unpause' }).click();
    await status(page, 'in progress');
    await page.locator('.banner', { hasText: 'runs without a slot of queue mail' }).waitFor();
    is(await page.locator('.banner', { hasText: 'waits for a slot' }).count(), 0, 'it is not said to wait');
  },

  async 'a queue and a schedule are paused where they are shown'(page) {
    await page.goto(at('fleet'));
    await page.getByRole('button', { name: 'Unpause the queue providers' }).click();
    await page.getByRole('dialog').getByText('ferrata queue unpause providers').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Unpause the queue' }).click();
    const providers = page.getByRole('article', { name: 'Queue providers' });
    await providers.locator('.status', { hasText: 'open' }).waitFor();
    await page.getByRole('button', { name: 'Limits… the queue providers' }).click();
    await page.getByRole('dialog').getByLabel('Slots', { exact: true }).fill('0');
    await page.getByText('A limit is a whole number of at least 1').waitFor();
    await page.getByRole('dialog').getByLabel('Slots', { exact: true }).fill('7');
    await sound(page, 'limits of a queue');
    await page.getByRole('dialog').getByRole('button', { name: 'Override limits' }).click();
    await providers.getByText('0 of 7 held').waitFor();
    const nightly = page.getByRole('row', { name: /nightly/ });
    await nightly.getByText('0 3 * * *').waitFor();
    await nightly.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('dialog').getByText('No tick starts a run until you unpause the schedule.').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
    await nightly.locator('.status', { hasText: 'paused' }).waitFor();
    await sound(page, 'the fleet');
  },

  async 'work in doubt has no answer to begin with, and takes two steps'(page) {
    await page.goto(at('run/default/transfer-1'));
    const form = page.getByRole('form', { name: 'Question pay@1' });
    await form.getByRole('button', { name: 'Choose what happened' }).waitFor();
    is(await form.getByRole('button', { name: 'Choose what happened' }).isDisabled(), true, 'nothing is chosen');
    is(await form.getByRole('radio', { checked: true }).count(), 0, 'no way is chosen');
    await form.getByRole('radio', { name: 'It happened: supply the result' }).check();
    await form.getByRole('button', { name: 'It happened: supply the result…' }).click();
    await form.getByText('choose a channel that the node has changed').waitFor();
    await form.getByLabel('Name of another channel').fill('receipt');
    await form.getByRole('button', { name: 'Add' }).click();
    await form.getByRole('textbox', { name: 'receipt' }).fill('"r-7"');
    await sound(page, 'a doubt');
    await form.getByRole('button', { name: 'It happened: supply the result…' }).click();
    // One step has recorded nothing, and another choice is confirmed anew.
    await form.getByRole('alert').filter({ hasText: 'It cannot be taken back' }).waitFor();
    await status(page, 'interrupted');
    await form.getByRole('radio', { name: 'It happened: continue' }).check();
    await form.getByRole('alert').waitFor({ state: 'detached' });
    await form.getByRole('radio', { name: 'It happened: supply the result' }).check();
    await form.getByRole('button', { name: 'It happened: supply the result…' }).click();
    await form.getByText('The same on the command line').click();
    await form.getByText('ferrata answer transfer-1 pay@1 --resolve supply --set').waitFor();
    await form.getByRole('button', { name: 'Yes, record it' }).click();
    await status(page, 'completed');
    await page.getByRole('tab', { name: 'State' }).click();
    await page.getByText('"r-7"').waitFor();
  },

  async 'a run whose child asks says what it asks, and is answered where it stands'(page) {
    await page.goto(at('runs'));
    const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: 'research', exact: true }) });
    await row.getByText('which asks').waitFor();
    await page.goto(at('run/default/research'));
    await page.locator('.banner.waiting', { hasText: 'which asks year@1:gate: For which year?' }).waitFor();
    is(await page.locator('.banner').count(), 1, 'no timer is told');
    await page.locator('.panel h2', { hasText: 'agent' }).waitFor();
    await page.getByRole('button', { name: 'agent, waits for runs that it started' }).waitFor();
    await page.getByRole('button', { name: 'write, waits for other branches' }).click();
    await page.getByText('other branches that lead to it have not ended').waitFor();
    const form = page.getByRole('form', { name: /year@1:gate/ });
    await form.getByRole('textbox', { name: 'Answer' }).fill('2026');
    await form.getByRole('button', { name: 'Answer' }).click();
    await status(page, 'completed');
  },

  async 'a retried run that no process has is not shown as running'(page) {
    await page.goto(at('run/default/order-1'));
    await page.locator('.banner.failed', { hasText: 'has no process' }).waitFor();
    await page.getByRole('button', { name: 'charge, waits for a process' }).waitFor();
    is(await page.locator('.bar.going').count(), 0, 'no bar of work is drawn');
    is(await page.locator('.node.going').count(), 0, 'nothing turns');
    is(await page.locator('.attempted').count(), 1, 'the attempt is listed where it was');
  },

  async 'what is clicked in the timeline is shown, however many visits there are'(page) {
    await page.goto(at('run/default/rounds'));
    await page.getByRole('listitem').getByRole('button', { name: /^.*step@3, done/ }).click();
    await page.locator('.visit.chosen h3', { hasText: 'visit 3 ' }).waitFor();
    is(await page.locator('.visit').first().locator('h3').innerText().then((text) => /visit 3\b/.test(text)), true, 'it stands first');
    await page.getByLabel('Visit', { exact: true }).fill('77');
    await page.keyboard.press('Enter');
    await page.locator('.visit.chosen h3', { hasText: 'visit 77 ' }).waitFor();
    const before = await page.locator('.visit').count();
    await page.getByRole('button', { name: /^Show 50 more of 120 visits/ }).click();
    is(await page.locator('.visit').count(), before + 50, 'more of them are shown');
  },

  async 'addresses that lead nowhere say so once'(page) {
    const asked = [];
    page.on('request', (request) => { if (request.url().includes('/api/v1/run')) asked.push(request.url()); });
    away = true;
    for (const [hash, text, way] of [
      ['run/default/pay-1?at=abc', 'abc', 'Show the newest record'], ['run/default/pay-1?at=999', '999', 'Show the newest record'],
      ['runs?status=faild', 'These conditions cannot be met', 'Show all runs'], ['runs?label=x', 'These conditions cannot be met', 'Show all runs'],
    ]) {
      await page.goto('about:blank');
      await page.goto(at(hash));
      await page.getByRole('button', { name: way }).waitFor();
      await page.getByText(text).first().waitFor();
      asked.length = 0;
      await page.waitForTimeout(1500);
      is(asked.filter((one) => one.includes('at=') || one.includes('/runs?')), [], `${hash} is not asked again`);
      is(await page.getByText('It is tried again').count(), 0, `${hash} is not tried again`);
    }
    await page.goto(at('nonsense'));
    await page.getByText('Cannot find the page #/nonsense').waitFor();
    await page.goto(at('run/pay-1'));
    await heading(page, 'pay-1');
    is(await page.evaluate(() => location.hash), '#/run/default/pay-1', 'a run is found without its tenant');
    away = false;
  },

  async 'a list begins with roots, and the way back leads to where it was left'(page) {
    await page.goto(at('runs'));
    const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: 'parent', exact: true }) });
    await row.getByRole('link', { name: /\d+ below · 1 failed/ }).waitFor();
    is(await page.locator('.who > a', { hasText: /^(queue|schedule):/ }).count(), 0, 'no queue and no schedule is a row');
    is(await page.evaluate(() => document.querySelector('.scroll').scrollWidth <= document.querySelector('.scroll').clientWidth), true, 'every column is on the screen');
    await row.getByRole('link', { name: /\d+ below/ }).click();
    await page.getByRole('link', { name: 'parent', exact: true }).first().waitFor();
    await page.goto(at('runs?label=batch%3Dold'));
    await page.getByRole('button', { name: 'Load more' }).click();
    const late = page.getByRole('link', { name: 'old-90', exact: true });
    await late.scrollIntoViewIfNeeded();
    const where = await page.evaluate(() => scrollY);
    await late.click();
    await heading(page, 'old-90');
    await page.goBack();
    await late.waitFor();
    is(Math.abs((await page.evaluate(() => scrollY)) - where) < 200, true, 'the list is where it was left');
  },

  async 'whatever a run says is text'(page) {
    for (const [hash, wait] of [['run/default/wild', '.runhead'], ['run/default/wild?tab=state', '.tree'], ['run/default/wild?tab=records', '.records'], ['report/default/wild', '.report table'], ['runs', 'table.runs']]) {
      await page.goto(at(hash));
      await page.locator(wait).first().waitFor();
      await page.waitForTimeout(100);
      is(await page.evaluate(() => [window.hit ?? null, document.querySelectorAll('#app script, #app iframe, #app img').length, /[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.body.innerText)]), [null, 0, false], `${hash} runs nothing, and turns nothing around`);
    }
    // A value of megabytes is there a part at a time.
    await page.goto(at('run/default/wild?tab=state'));
    await page.getByRole('button', { name: /long/ }).click();
    await page.getByRole('button', { name: /More: \d+ characters/ }).waitFor();
  },

  async 'every page is sound in the dark and on a telephone'() {
    if (which === 'brief') return;
    const page = await open('dark', 390);
    for (const [hash, wait] of [['runs', 'table.runs'], ['run/default/pay-1', '.runhead'], ['fleet', '.cards'], ['questions', '.question'], ['report/default/pay-3', '.report table']]) {
      await page.goto(at(hash));
      await page.locator(wait).first().waitFor();
      await page.waitForTimeout(150);
      await sound(page, `${hash} in the dark`);
      is(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${hash} is as wide as the screen`);
    }
    await page.context().close();
  },

  async 'a process that is killed while its run is watched is told, and the run goes on elsewhere'(page) {
    await need('doom');
    await page.goto(at('run/default/doomed'));
    await page.locator('.banner.going', { hasText: 'is running in process' }).waitFor();
    await page.locator('.liveness.on').waitFor();
    await need('kill');
    // Its heartbeat counts for some seconds, and the page looks for it now and then.
    await page.locator('.banner.failed', { hasText: 'has expired' }).waitFor();
    await page.goto(at('runs?q=doomed'));
    await page.getByText('has no process').waitFor();
    await page.goto(at('run/default/doomed'));
    await status(page, 'in progress');
    await need('rescue');
    await status(page, 'completed');
    await page.getByText('claimed twice').waitFor();
  },

  async 'of two tabs with one question, one answers and the other says so'(page) {
    const other = await open();
    // What would take the question away is kept from the other tab.
    await other.goto(at('run/default/pay-4'));
    const theirs = other.getByRole('form', { name: 'Question approve@1:gate' });
    await theirs.waitFor();
    await theirs.getByRole('radio', { name: 'No', exact: true }).check();
    await other.route('**/*', (route) => (route.request().method() === 'POST' ? route.continue() : undefined));
    await page.goto(at('run/default/pay-4'));
    const ours = page.getByRole('form', { name: 'Question approve@1:gate' });
    await ours.getByRole('radio', { name: 'Yes' }).check();
    await ours.getByRole('button', { name: 'Answer' }).click();
    await status(page, 'completed');
    away = true;
    await theirs.getByRole('button', { name: 'Answer' }).click();
    await theirs.getByRole('alert').filter({ hasText: 'Too late' }).waitFor();
    await other.context().close();
    away = false;
  },

  async 'a form is made of the schema of an answer, and what stands in it is text'(page) {
    await page.goto(at('run/default/form'));
    const form = page.getByRole('form', { name: 'Question ask@1:gate' });
    await form.waitFor();
    await sound(page, 'a form');
    is(await page.evaluate(() => [window.hit ?? null, document.querySelectorAll('#app img, #app script, .question b').length]), [null, 0], 'a question runs nothing');
    await form.getByLabel('eur').fill('-1');
    await form.getByRole('button', { name: 'Answer' }).click();
    await form.getByText('eur: at least 0').waitFor();
    await form.getByLabel('eur').fill('18446744073709551616');
    await form.getByRole('button', { name: 'Answer' }).click();
    await form.getByText('eur: at most 18446744073709551615').waitFor();
    await form.getByLabel('eur').fill('18446744073709551615');
    await form.getByLabel('how: which').selectOption('cash');
    is(await form.getByRole('radio', { name: 'cash' }).count(), 0, 'a choice of one is not chosen twice');
    await form.getByLabel('how: which').selectOption('card');
    await form.getByLabel('card').fill('4111');
    await form.getByRole('radio', { name: '<b>yes</b>' }).check();
    await form.getByRole('button', { name: 'Answer' }).click();
    await page.getByRole('button', { name: 'Unpause' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Unpause' }).click();
    await status(page, 'completed');
    await page.goto(at('run/default/form?tab=state'));
    // All of its digits.
    await page.getByText('"eur":18446744073709551615').waitFor();
    await page.getByText('"how":{"card":"4111"}').waitFor();
  },

  async 'a run is changed, goes on elsewhere, and is purged'(page) {
    await page.goto(at('run/default/pay-5'));
    await status(page, 'failed');
    const more = async (name) => { await page.getByLabel('More acts').click(); await page.locator('.menu').getByRole('button', { name }).click(); };
    await more('Change the state');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Change a channel').selectOption('amount');
    await dialog.getByRole('textbox', { name: 'amount' }).fill('7');
    await dialog.getByLabel('Change a channel').selectOption('invoice');
    const invoice = dialog.getByRole('textbox', { name: 'invoice' });
    is((await invoice.inputValue()).includes('12345678901234567,'), true, 'no digit of a number is lost');
    await invoice.fill((await invoice.inputValue()).replace('one', 'two'));
    await dialog.getByText('ferrata edit pay-5 --set amount=7').waitFor();
    await dialog.getByRole('button', { name: 'Change', exact: true }).click();
    await more('Move to other nodes');
    await dialog.getByLabel('At').selectOption('check');
    await dialog.getByLabel('Reason').fill('the amount was wrong');
    await dialog.getByText("ferrata goto pay-5 check --reason 'the amount was wrong' --yes").waitFor();
    await sound(page, 'a move');
    await dialog.getByRole('button', { name: 'Move the run' }).click();
    await status(page, 'completed');
    await page.getByRole('tab', { name: 'State' }).click();
    await page.getByText('{"number":12345678901234567,"text":"two"}').waitFor();
    away = true;
    await more('Purge');
    await dialog.getByRole('button', { name: 'Purge', exact: true }).click();
    await page.locator('table.runs').waitFor();
    is(await page.getByRole('link', { name: 'pay-5', exact: true }).count(), 0, 'it is gone');
    away = false;
  },

  async 'an act is done though its page is left meanwhile, and the viewer stays where they went'(page) {
    let release;
    await page.route('**/acts/*', async (route) => { await new Promise((go) => { release = go; }); await route.continue(); });
    const leave = async (notice) => {
      for (const hash of ['run/default/none', 'run/default/pay-1', 'runs']) await page.goto(at(hash));
      await page.getByRole('link', { name: 'pay-1', exact: true }).waitFor();
      release();
      await page.getByText(notice, { exact: true }).waitFor();
      is(await page.evaluate(() => location.hash), '#/runs', 'the page has not gone elsewhere');
    };
    const asked = () => page.waitForRequest((request) => request.method() === 'POST');
    await page.goto(at('run/default/pay-3'));
    await page.getByRole('button', { name: 'Retry' }).click();
    let posted = asked();
    await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click();
    await posted;
    await leave('Retry: 1 run');
    await page.goto(at('run/default/pay-3'));
    await status(page, 'failed');
    await page.keyboard.press('f');
    await page.getByRole('dialog').getByLabel('Id of the new run').fill('left');
    posted = asked();
    await page.getByRole('dialog').getByRole('button', { name: 'Fork and go there' }).click();
    await posted;
    await leave('Forked');
    await page.getByRole('link', { name: 'left', exact: true }).waitFor();
  },

  async 'all runs of a list are purged, as the dry run says'(page) {
    await page.goto(at('runs?label=batch%3Dwrong'));
    await page.getByRole('link', { name: 'wrong-2' }).waitFor();
    await page.getByRole('button', { name: 'All of these' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('radio', { name: 'Purge' }).check();
    await dialog.getByText('3 runs would be purged').waitFor();
    await dialog.getByText('Nothing is done yet').waitFor();
    await dialog.getByText('ferrata purge --label batch=wrong --status completed,failed,cancelled --yes').waitFor();
    await sound(page, 'all runs of a list');
    await dialog.getByRole('button', { name: 'Purge 3 runs' }).click();
    await page.getByText('No run meets these conditions').waitFor();
    await page.goto(at('runs'));
    await page.getByRole('link', { name: 'pay-1', exact: true }).waitFor();
  },

  async 'no run of a list that was loaded on is lost when others come'(page) {
    await page.goto(at('runs?label=batch%3Dold'));
    await page.getByRole('link', { name: 'old-0', exact: true }).waitFor();
    await page.getByRole('button', { name: 'Load more' }).click();
    await page.getByRole('link', { name: 'old-60', exact: true }).waitFor();
    await need('newer');
    await page.getByRole('link', { name: 'newer', exact: true }).waitFor();
    const names = await page.locator('table.runs .who > a').allInnerTexts();
    is(names.slice(0, 62), ['newer', ...Array.from({ length: 61 }, (_, index) => `old-${index}`)], 'each run is there, in its order');
  },

  async 'runs that a node started are in the graph and lead to them'(page) {
    await page.goto(at('run/default/parent'));
    await status(page, 'completed');
    const runs = page.getByRole('button', { name: /Runs that fan started: \d+, some failed/ });
    await runs.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: /, failed$/ }).waitFor();
    await page.getByRole('button', { name: /and \d+ more/ }).waitFor();
    await sound(page, 'a graph with runs');
    await page.getByRole('button', { name: /and \d+ more/ }).click();
    await page.getByRole('heading', { name: /runs that its nodes started/ }).waitFor();
    await page.getByRole('button', { name: /^Run .*, failed$/ }).click();
    await status(page, 'failed');
    await page.getByText('started by').waitFor();
  },

  async 'what is large is there soon, and freezes nothing'(page) {
    const seen = async (hash, what) => {
      await page.goto('about:blank');
      const since = Date.now();
      await page.goto(at(hash));
      await what().waitFor();
      const asked = await page.evaluate(() => Math.round(Math.max(...performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/v1/run')).map((one) => one.duration))));
      console.log(`note ${hash} is seen after ${Date.now() - since} ms, of which the longest request takes ${asked} ms`);
    };
    await seen('run/default/rounds', () => page.getByRole('button', { name: /^step, done/ }));
    await page.getByRole('slider').press('Home');
    await page.getByText('record 0 of').waitFor();
    await seen('run/default/hundred', () => page.getByRole('group', { name: 'Graph of 100 nodes' }).getByRole('button', { name: 'n9-9, ' }));
    await sound(page, 'a hundred nodes');
    await seen('runs?label=batch%3Dold', () => page.getByRole('link', { name: 'old-0' }));
    await page.getByRole('button', { name: 'Load more' }).click();
    await page.getByRole('link', { name: 'old-60' }).waitFor();
    await seen('run/default/wild?tab=state', () => page.locator('.tree').first());
    // The longest time between two pictures while values of megabytes are opened.
    await page.evaluate(() => { window.longest = 0; let last = performance.now(); const next = () => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(next); }; next(); });
    await page.getByRole('button', { name: /rows/ }).click();
    await page.getByRole('button', { name: /More: 29800 of 30000/ }).click();
    await page.getByRole('button', { name: /More: 29600 of 30000/ }).waitFor();
    const longest = await page.evaluate(() => Math.round(window.longest));
    console.log(`note the longest pause with a state of megabytes is ${longest} ms`);
    // Of thirty thousand rows those are made that are looked at: what the page does at once has a bound.
    const made = await page.evaluate(() => document.querySelectorAll('#app *').length);
    console.log(`note the page with a state of megabytes has ${made} elements`);
    is(made < 10_000, true, `the page goes on: ${made} elements`);
  },

  async 'a page at which nothing happens asks little'(page) {
    await page.goto(at('run/default/pay-1'));
    await status(page, 'completed');
    await page.waitForTimeout(300);
    if (which === 'brief') return;
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    // What it asks for so long, of the machine's own time, once what it asks at first has been answered.
    const asks = async (what, quiet, time, most) => {
      for (let before = -1; before < asked.length;) {
        before = asked.length;
        await page.waitForTimeout(quiet);
      }
      asked.length = 0;
      const begun = Date.now();
      await page.waitForTimeout(time);
      const bound = most * Math.max(1, (Date.now() - begun) / time);
      is(asked.length <= bound, true, `of ${what}: ${asked}`);
    };
    await asks('a run', 300, 4200, 3);
    await page.goto(at('runs?label=batch%3Dold'));
    await page.getByRole('link', { name: 'old-0' }).waitFor();
    await asks('a list', 300, 3200, 4);
  },

  async 'a store that goes away is told, and the page goes on when it is back'(page) {
    await page.goto(at('run/default/pay-1'));
    await status(page, 'completed');
    away = true;
    if (await need('away')) {
      await page.getByRole('alert').filter({ hasText: 'UNAVAILABLE' }).waitFor();
      // What was read before is still there, and what is asked now comes when the store is back.
      await status(page, 'completed');
      await page.getByRole('tab', { name: 'State' }).click();
      await page.locator('.panel .wrong').waitFor();
      await need('back');
      await page.getByRole('alert').waitFor({ state: 'detached' });
      await page.locator('.panel .tree .key', { hasText: 'amount' }).waitFor();
      await page.goto(at('runs'));
      await page.getByRole('link', { name: 'pay-1', exact: true }).waitFor();
    }
    away = false;
  },

  async 'a server that goes away is told, and it comes back'(page) {
    await page.goto(at('run/default/pay-1'));
    await status(page, 'completed');
    away = true;
    await need('stop');
    await page.getByRole('alert').waitFor();
    await need('serve');
    await page.getByRole('alert').waitFor({ state: 'detached' });
    away = false;
  },
};

async function shoot() {
  // `FERRATA_SIZES=wide-light,phone-dark` makes only those.
  const wanted = process.env.FERRATA_SIZES?.split(',');
  for (const scheme of ['light', 'dark']) {
    for (const [width, name] of [[1280, 'wide'], [820, 'tablet'], [390, 'phone']]) {
      if (wanted && !wanted.includes(`${name}-${scheme}`)) continue;
      const page = await open(scheme, width);
      for (const [hash, file, wait] of [['run/default/transfer-1', 'doubt', '.dock'], ['run/default/research', 'asked-below', '.dock'], ['run/default/order-1', 'alone', '.banner'], ['run/default/fetch-1', 'retry', '.banner'], ['run/default/rounds', 'rounds', '.timeline'], ['run/default/hundred', 'hundred', '.graph .node'], ['runs?below=default/parent', 'below', 'table.runs'], ['run/default/none', 'none', '.empty'], ['run/default/pay-1?at=abc', 'wrong', '.empty'], ['runs', 'runs', 'table.runs'], ['run/default/pay-3', 'run', '.runhead'], ['questions', 'questions', '.question'], ['fleet', 'fleet', '.cards'], ['report/default/pay-3', 'report', '.report table'], ['run/default/pay-2', 'question', '.dock'], ['run/default/letter-3', 'waits', '.banner.waiting']]) {
        await page.goto(at(hash));
        await page.locator(wait).first().waitFor();
        await page.waitForTimeout(400);
        await page.screenshot({ path: `${pictures}/${file}-${name}-${scheme}.png` });
      }
      await page.goto(at('run/default/pay-1?tab=state'));
      await page.locator('.runhead').waitFor();
      await page.getByRole('button', { name: 'Difference' }).click();
      await page.locator('.diff .where').first().waitFor();
      await page.screenshot({ path: `${pictures}/difference-${name}-${scheme}.png` });
      await page.goto(at('run/default/parent'));
      await page.getByRole('button', { name: /Runs that fan started/ }).click();
      await page.getByRole('button', { name: /, failed$/ }).waitFor();
      await page.waitForTimeout(300);
      await page.screenshot({ path: `${pictures}/children-${name}-${scheme}.png` });
      await page.goto(at('runs?label=batch%3Dwrong'));
      await page.getByRole('button', { name: 'All of these' }).click();
      await page.getByRole('dialog').getByRole('radio', { name: 'Purge' }).check();
      await page.getByText('3 runs would be purged').waitFor();
      await page.screenshot({ path: `${pictures}/all-${name}-${scheme}.png` });
      await page.goto(at('run/default/form'));
      await page.getByRole('form', { name: 'Question ask@1:gate' }).waitFor();
      await page.getByLabel('how: which').selectOption('card');
      await page.screenshot({ path: `${pictures}/form-${name}-${scheme}.png` });
      await page.goto(at('run/default/pay-5'));
      await page.getByLabel('More acts').click();
      await page.waitForTimeout(200);
      await page.screenshot({ path: `${pictures}/more-${name}-${scheme}.png` });
      await page.locator('.menu').getByRole('button', { name: 'Change the state' }).click();
      await page.getByRole('dialog').getByLabel('Change a channel').selectOption('invoice');
      await page.screenshot({ path: `${pictures}/edit-${name}-${scheme}.png` });
      await page.context().close();
    }
  }
}

let failed = false;
if (pictures) await shoot();
else {
  for (const [name, story] of Object.entries(stories).filter(([name]) => new RegExp(only).test(name))) {
    const page = await open();
    try {
      await story(page);
      is(said, [], 'the page says something of itself');
      console.log(`note ${name}: ok, at ${Date.now() - began} ms`);
    } catch (error) {
      console.log(`failed ${name}: ${String(error.message).replaceAll('\n', ' ⏎ ')} · page says: ${said.join(' | ')} · ${page.url()} · ${(await page.locator('body').innerText().catch(() => '')).slice(0, 1500).replaceAll('\n', ' ⏎ ')}`);
      failed = true;
      if (!only) break;
    }
    await page.context().close();
  }
}
await browser.close();
console.log('done');
process.exit(failed ? 1 : 0);
