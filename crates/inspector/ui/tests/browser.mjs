// The page in a browser, against a server that a test of the command has started. The test does what is asked of it by `need`.
// `node tests/browser.mjs URL CHROMIUM [SCREENSHOTS]`

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [url, executablePath, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const began = Date.now();

async function need(what) {
  console.log(`need ${what}`);
  const { value } = await lines.next();
  if (value !== 'ok') throw new Error(`the test could not do ${what}: ${value}`);
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
async function open(colorScheme = 'light', width = 1280) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  page.on('console', (message) => { if (!away && ['error', 'warning'].includes(message.type())) said.push(`${page.url()}: ${message.text()}`); });
  page.on('pageerror', (error) => said.push(`${page.url()}: ${error.message}`));
  page.on('dialog', (dialog) => { said.push(`${page.url()}: a dialog says ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(url)) said.push(`${page.url()}: asks for ${request.url()}`); });
  return page;
}
async function sound(page, what) {
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
    await page.getByText('send: ').first().waitFor();
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
    await page.getByRole('button', { name: 'send, at work' }).waitFor();
    is(await page.getByRole('button', { name: 'send, at work' }).boundingBox(), before, 'the picture has not moved');
    await page.getByRole('slider').press('Home');
    await page.getByText('record 0 of').waitFor();
    await page.getByRole('tab', { name: 'State' }).click();
    await page.locator('.tree .key', { hasText: 'amount' }).waitFor();
    await page.keyboard.press('l');
    await status(page, 'failed');
    await page.getByRole('button', { name: 'Difference' }).click();
    await page.getByRole('button', { name: 'Compare with…' }).click();
    await page.getByLabel(/Place, or RUN/).fill('pay-1 0');
    await page.getByRole('button', { name: 'Compare', exact: true }).click();
    await page.locator('.diff .where', { hasText: '/amount' }).waitFor();
    await page.getByRole('tab', { name: 'Records' }).click();
    await page.getByText(/failed for good/).first().waitFor();
    await page.getByRole('tab', { name: 'Family' }).click();
    await page.getByRole('heading', { name: /Forks of it/ }).waitFor();
  },

  async 'a run that another process drives is seen while it goes on'(page) {
    await need('start');
    await page.goto(at('run/default/live'));
    await status(page, 'in progress');
    await page.getByRole('button', { name: 'work, at work' }).waitFor();
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
    const form = page.getByRole('form', { name: 'Question approve@1:gate' });
    await form.getByRole('button', { name: 'Answer' }).click();
    await form.getByText('choose one').waitFor();
    await sound(page, 'questions');
    await form.getByRole('radio', { name: 'Yes' }).focus();
    await page.keyboard.press('Space');
    await page.keyboard.press('Enter');
    await page.getByText('No run waits for an answer').waitFor();
    await page.goto(at('run/default/pay-2'));
    await status(page, 'completed');
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
    await dialog.getByText('ferrata fork pay-3 0 --id again --set amount=7').waitFor();
    await sound(page, 'a dialog');
    await dialog.getByRole('button', { name: 'Fork and go there' }).click();
    await heading(page, 'again');
    await status(page, 'completed');
    await page.getByText('forked from').waitFor();
  },

  async 'what must not happen is refused where it is asked for'(page) {
    await page.goto(at('run/default/pay-3'));
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click();
    // It fails again: the bank is still closed.
    await page.getByText(/had it tried again/).or(page.locator('.runhead .status', { hasText: 'failed' })).first().waitFor();
    away = true;
    await page.goto(at('run/default/none'));
    await page.getByText('there is no run default/none').waitFor();
    away = false;
  },

  async 'whatever a run says is text'(page) {
    for (const [hash, wait] of [['run/default/wild', '.runhead'], ['run/default/wild?tab=state', '.tree'], ['run/default/wild?tab=records', '.records'], ['report/default/wild', '.report table'], ['runs', 'table.runs']]) {
      await page.goto(at(hash));
      await page.locator(wait).first().waitFor();
      await page.waitForTimeout(100);
      is(await page.evaluate(() => [window.hit ?? null, document.querySelectorAll('#app script, #app iframe, #app img').length]), [null, 0], `${hash} runs nothing`);
    }
    // A value of megabytes is there a part at a time.
    await page.goto(at('run/default/wild?tab=state'));
    await page.getByRole('button', { name: /long/ }).click();
    await page.getByRole('button', { name: /More: \d+ characters/ }).waitFor();
  },

  async 'every page is sound in the dark and on a telephone'() {
    const page = await open('dark', 390);
    for (const [hash, wait] of [['runs', 'table.runs'], ['run/default/pay-1', '.runhead'], ['fleet', '.cards'], ['report/default/pay-3', '.report table']]) {
      await page.goto(at(hash));
      await page.locator(wait).first().waitFor();
      await page.waitForTimeout(150);
      await sound(page, `${hash} in the dark`);
      is(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${hash} is as wide as the screen`);
    }
    await page.context().close();
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
  for (const scheme of ['light', 'dark']) {
    for (const [width, name] of [[1280, 'wide'], [820, 'tablet'], [390, 'phone']]) {
      const page = await open(scheme, width);
      for (const [hash, file, wait] of [['runs', 'runs', 'table.runs'], ['run/default/pay-3', 'run', '.runhead'], ['questions', 'questions', '.question'], ['fleet', 'fleet', '.cards'], ['report/default/pay-3', 'report', '.report table']]) {
        await page.goto(at(hash));
        await page.locator(wait).first().waitFor();
        await page.waitForTimeout(400);
        await page.screenshot({ path: `${pictures}/${file}-${name}-${scheme}.png` });
      }
      await page.context().close();
    }
  }
}

let failed = false;
if (pictures) await shoot();
else {
  for (const [name, story] of Object.entries(stories)) {
    const page = await open();
    try {
      await story(page);
      is(said, [], 'the page says something of itself');
      console.log(`note ${name}: ok, at ${Date.now() - began} ms`);
    } catch (error) {
      console.log(`failed ${name}: ${String(error.message).replaceAll('\n', ' ⏎ ')} · page says: ${said.join(' | ')} · ${page.url()} · ${(await page.locator('body').innerText().catch(() => '')).slice(0, 600).replaceAll('\n', ' ⏎ ')}`);
      failed = true;
      break;
    }
    await page.context().close();
  }
}
await browser.close();
console.log('done');
process.exit(failed ? 1 : 0);
