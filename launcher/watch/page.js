// Names and output come from other people's programs: they are set as text, never as HTML.
const key = location.hash.slice(1);
const page = Math.random().toString(36).slice(2);
let lastEvent = -1, chosen = null, over = false, shown = null;
const boxes = new Map();  // of jobs, by their ids
const curves = new Curves('curves', 'Over time');
const hostCurves = new Curves('host-curves', '');  // of the host of the rank that is chosen
for (const button of hostCurves.buttons) button.hidden = true;

function make(tag, classes, text, children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== undefined && text !== null) element.textContent = text;
  for (const child of children || []) if (child) element.append(child);
  return element;
}
function set(element, name, value) {
  const known = element.known || (element.known = {});
  if (known[name] === value) return;
  known[name] = value;
  element[name] = value;
}
function trim(list, length) { while (list.length > length) list.pop().remove(); }
// As duration_text() and bytes_text() of dtrun have them.
function span(s) {
  const two = n => String(Math.floor(n)).padStart(2, '0');
  if (s < 60) return s.toFixed(s < 10 ? 2 : 0) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + two(s % 60) + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + two(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}
function bytes(n) {
  const units = ['B', 'K', 'M', 'G', 'T', 'P'];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) { n /= 1024; ++unit; }
  return n.toFixed(n < 10 && unit ? 1 : 0) + units[unit];
}
function clock(seconds) {
  const time = new Date(1000 * seconds);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(part => String(part).padStart(2, '0')).join(':');
}
function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const part = n => String(Math.floor(n)).padStart(2, '0');
  return 'UTC' + (minutes < 0 ? '-' : '+') + part(Math.abs(minutes) / 60) + ':' + part(Math.abs(minutes) % 60);
}
// Without what only a terminal understands; of a line that was written over, the last.
function plain(text) {
  return text.replace(/\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|\x1b./g, '')
      .split('\n').map(line => line.replace(/\r+$/, '').split('\r').pop()).join('\n');
}
async function ask(path) {
  const reply = await fetch(path, {headers: {Authorization: 'Bearer ' + key}});
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}
function trouble(text) {
  const box = document.getElementById('trouble');
  set(box, 'hidden', !text);
  set(box, 'textContent', text || '');
}
function isHead() { return shown && shown.last_event !== undefined; }  // and not a daemon

function choose(job, rank, host) {
  if (rank === null || rank === undefined) return;
  chosen = isChosen(job, rank) ? null : {job, rank, host};
  draw();
  showRank();
}
function isChosen(job, rank) { return chosen !== null && chosen.job === job && chosen.rank === rank; }

class JobBox {
  constructor(job) {
    this.name = make('h1');
    this.pill = make('span', 'pill');
    this.copy = make('button', 'mono');
    this.copy.title = 'copy the job\'s id';
    this.copy.onclick = () => navigator.clipboard && navigator.clipboard.writeText(job.job).then(() => { set(this.copied, 'textContent', 'copied'); });
    this.copied = make('span', 'soft');
    this.copied.setAttribute('role', 'status');
    this.facts = make('span', 'row');
    this.stacks = make('button', '', 'where are the ranks?');
    this.stacks.onclick = showStacks;
    this.says = make('div', 'says');
    this.says.setAttribute('aria-live', 'polite');
    this.report = make('pre', 'report');
    this.report.hidden = true;
    this.map = new HostMap(choose, isChosen);
    this.head = make('header', 'card', null, [make('div', 'row', null, [this.name, this.pill, this.facts, this.copy, this.copied, this.stacks]), this.says, this.report]);
    this.element = make('section', 'job', null, [this.head, this.map.element]);
  }
  update(job) {
    set(this.name, 'textContent', job.program || job.job);
    const failed = job.state === 'ended' && job.exit_code !== undefined && job.exit_code !== 0;
    set(this.pill, 'className', 'pill ' + (failed ? 'failed' : job.state === 'ended' ? 'success' : job.state));
    set(this.pill, 'textContent', job.state !== 'ended' ? job.state : failed ? 'ended with exit code ' + job.exit_code :
      job.exit_code === 0 ? 'ended well' : 'ended');
    set(this.copy, 'textContent', job.job.slice(0, 12));
    set(this.copy, 'hidden', !job.program);
    const counts = {};
    for (const host of job.hosts) for (const letter of host.states) counts[letter] = (counts[letter] || 0) + 1;
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const facts = [[total, job.state === 'gathering' ? 'slots' : 'ranks'], [job.hosts.length, 'hosts'], [job.step, null, 'step '],
      [job.ran_s === undefined ? null : span(Math.floor(job.ran_s)), null, 'for '], [job.restarts || null, 'restarts'],
      [job.started ? clock(Date.parse(job.started) / 1000) + ' ' + zone() : null, null, 'since '],
      [job.dtrun_host ? job.dtrun_host + ', pid ' + job.dtrun_pid : null, null, 'dtrun on ']];
    const text = facts.filter(([value]) => value !== null && value !== undefined)
        .map(([value, after, before]) => (before || '') + value + (after ? ' ' + (value === 1 ? after.slice(0, -1) : after) : '')).join('  ·  ');
    set(this.facts, 'textContent', text);
    set(this.stacks, 'hidden', !isHead() || job.state === 'ended' || !counts.r && !counts.l);
    this.say(job);
    set(this.report, 'hidden', !failed || !job.report);
    set(this.report, 'textContent', failed && job.report || '');
    this.map.update(job);
  }
  say(job) {
    const says = JSON.stringify(job.findings);
    if (this.said === says) return;
    this.said = says;
    this.says.replaceChildren(...job.findings.slice(0, 6).map(finding => {
      const say = make('p', 'say ' + finding.severity);
      const select = finding.rank === undefined ? null : make('button', 'link', 'show');
      if (select) select.onclick = () => { if (!isChosen(job.job, finding.rank)) choose(job.job, finding.rank, finding.host); };
      say.append(finding.text + ' ', select || '');
      return say;
    }));
  }
}

function facts(list) {
  return make('dl', '', null, list.filter(([, value]) => value !== undefined && value !== null && value !== '')
      .flatMap(([name, value]) => [make('dt', '', name), make('dd', '', value)]));
}
function drawDetail() {
  const box = document.getElementById('detail');
  const job = chosen && shown.jobs.find(each => each.job === chosen.job);
  const host = job && job.hosts.find(each => each.ranks.includes(chosen.rank));
  box.hidden = !host;
  if (!host) return;
  const index = host.ranks.indexOf(chosen.rank);
  const detail = chosen.detail || {};
  const rank = detail.rank || {}, on = detail.host || {};
  const letter = host.states[index];
  const gpus = (on.gpus || []).filter(gpu => gpu.ranks.includes(chosen.rank));
  const list = [['state', (words[letter] || '') + (rank.signal ? ' by ' + rank.signal : rank.code !== undefined ? ', exit code ' + rank.code : '')],
    ['step', rank.step === undefined ? null : rank.step + (host.behind && host.behind[index] ? ', ' + host.behind[index] + ' behind' : '')],
    ['steps/s', rank.steps_per_s], ['last step', rank.step_age_s > 5 ? span(Math.floor(rank.step_age_s)) + ' ago' : null],
    ['processor', rank.processors === undefined ? null : (rank.processors * 100).toFixed(0) + ' %'],
    ['memory', rank.memory_bytes === undefined ? null : bytes(rank.memory_bytes)],
    ...gpus.map(gpu => ['GPU ' + gpu.index, gpu.name + ', ' + gpu.busy_percent + ' %, memory ' + bytes(gpu.memory_bytes) + ' of ' + bytes(gpu.memory_total_bytes)]),
    ['pid', rank.pid], ['for', rank.ran_s === undefined ? null : span(Math.floor(rank.ran_s))],
    ['host', on.load === undefined ? null : 'load ' + on.load.toFixed(1) + ' of ' + on.processors + ', memory ' + bytes(on.memory_bytes) + ' of ' + bytes(on.memory_total_bytes)],
    ['in a shell', isHead() && !over ? 'dtrun attach ' + job.job.slice(0, 8) + ' ' + chosen.rank : null],
    ['all it printed', detail.log], ['its files', detail.files]];
  if (box.of !== chosen) {
    box.of = chosen;
    const close = make('button', 'close', 'close');
    close.onclick = () => choose(chosen.job, chosen.rank);
    box.facts = make('div');
    box.output = make('pre', 'output');
    set(hostCurves.title, 'textContent', host.host + ', since this page was opened');
    box.replaceChildren(close, make('h2', '', 'Rank ' + chosen.rank + ' on ' + host.host), box.facts, ...(isHead() ? [box.output, hostCurves.element] : []));
  }
  hostCurves.points = hostRows.get(host.host) || [];
  hostCurves.draw();
  box.facts.replaceChildren(facts(list));
  // Only what is new is changed: who reads, or has marked some of it, is not disturbed.
  const below = box.output.scrollTop + box.output.clientHeight > box.output.scrollHeight - 8;
  if (box.output.textContent === (chosen.text || '')) return;
  box.output.textContent = chosen.text || '';
  if (below) box.output.scrollTop = box.output.scrollHeight;
}
function drawList(id, title, lines) {
  const box = document.getElementById(id);
  box.hidden = !lines.length;
  const text = title + JSON.stringify(lines);
  if (box.lines === text) return;
  box.lines = text;
  box.replaceChildren(make('h2', '', title), make('ul', '', null, lines.map(([name, time, line]) =>
    make('li', name, null, [time ? make('span', 'soft mono', time + ' ') : null, line]))));
}
let events = [];
function draw() {
  const jobs = document.getElementById('jobs');
  const known = new Set(shown.jobs.map(job => job.job));
  for (const [id, box] of boxes) if (!known.has(id)) { box.element.remove(); boxes.delete(id); }
  if (!boxes.size) jobs.replaceChildren(...(shown.jobs.length ? [] : [make('p', 'card', 'No job is known here.')]));
  for (const job of shown.jobs) {
    let box = boxes.get(job.job);
    if (!box) {
      box = new JobBox(job);
      boxes.set(job.job, box);
      if (isHead()) box.head.after(curves.element);
      jobs.append(box.element);
    }
    box.update(job);
  }
  drawDetail();
  drawList('waiting', 'Who waits, and for what', shown.jobs.flatMap(job => job.waiting).map(line => ['', '', line]));
  drawList('events', 'Events, ' + zone(), [...events].reverse().map(event => [event.severity, clock(event.time), event.text]));
  const side = document.getElementById('side');
  side.hidden = [...side.children].every(child => child.hidden);
  document.getElementById('page').classList.toggle('sided', !side.hidden);
  const first = shown.jobs[0];
  if (shown.jobs.length !== 1) document.title = 'dtrun';
  else document.title = first.findings[0].text + ' · ' + (first.program || 'dtrun');
}
// The functions in which ranks are, as `dtrun stacks` has them.
async function showStacks() {
  const box = document.getElementById('stacks');
  const close = make('button', 'close', 'close');
  close.onclick = () => { box.hidden = true; draw(); };
  const show = (title, text) => {
    box.replaceChildren(close, make('h2', '', title), make('pre', '', text));
    box.hidden = false;
    draw();
  };
  show('Where the ranks are', 'Asking them …');
  try {
    const lines = (await ask('api/stacks')).lines;
    show('Where the ranks were at ' + clock(Date.now() / 1000), lines.length ? lines.join('\n') : 'No rank has told in time.');
  } catch (error) { show('Where the ranks are', error instanceof TypeError ? 'dtrun does not answer.' : error.message); }
}
const kept = new Map();  // what ranks have printed, once dtrun is gone
async function showRank() {
  const of = chosen;
  if (!of || !isHead() || (over && !kept.has(of.rank))) return;
  try {
    of.detail = over ? kept.get(of.rank) : await ask('api/rank?rank=' + of.rank);
    of.text = plain(of.detail.text);
    if (of === chosen) drawDetail();
  } catch (error) { /* the next look tells */ }
}
// dtrun waits for that, and no longer than a moment: those that have failed come first.
async function keepRanks(job) {
  const letters = 'fxldewr';
  const ranks = job.hosts.flatMap(host => host.ranks.map((rank, index) => [rank, letters.indexOf(host.states[index])]));
  ranks.sort((a, b) => a[1] - b[1]);
  for (const [rank] of ranks.slice(0, 16)) if (rank !== null) kept.set(rank, await ask('api/rank?rank=' + rank));
}
// How hosts were as long as somebody has looked: the head keeps the job's curves alone, whose size does not grow with it.
const hostRows = new Map();
let hostsAt = 0;
function keepHosts(job) {
  const now = Math.floor(Date.now() / 1000);
  if (now - hostsAt < 5) return;
  hostsAt = now;
  const spread = list => {
    const known = (list || []).filter(value => value !== null && value !== undefined).sort((a, b) => a - b);
    return known.length ? [known[0], known[known.length >> 1], known[known.length - 1]] : [null, null, null];
  };
  for (const host of job.hosts) {
    const rows = hostRows.get(host.host) || [];
    const load = host.load === undefined ? [] : [100 * host.load / host.processors];
    rows.push([now, ...spread(host.pace), ...spread(host.gpu), ...spread(host.gpu_memory), ...spread(load), ...spread([host.memory])]);
    if (rows.length > 360) rows.shift();
    hostRows.set(host.host, rows);
  }
}
let curvesAt = 0, allCurvesAt = 0;
async function showCurves() {
  if (Date.now() - curvesAt < 5000) return;
  curvesAt = Date.now();
  // Now and then all of them, which are coarser as they get older.
  const all = Date.now() - allCurvesAt > 600000;
  const rows = (await ask('api/curves?after=' + (all ? 0 : curves.last()))).points;
  if (all) {
    allCurvesAt = Date.now();
    curves.points = [];
  }
  curves.add(rows);
}
async function look() {
  for (;;) {
    try {
      shown = await ask('api/view?page=' + page + '&after=' + lastEvent);
      trouble('');
      const first = shown.jobs.length === 1 ? shown.jobs[0] : null;
      // Who failed first is what one wants to see.
      const named = first && first.findings.find(finding => finding.severity === 'failure' && finding.rank !== undefined);
      const hasRoom = matchMedia('(min-width: 64rem)').matches;
      if (named && !chosen && isHead() && hasRoom) chosen = {job: first.job, rank: named.rank, host: named.host};
      lastEvent = shown.last_event === undefined ? -1 : shown.last_event;
      if (shown.events) events = shown.events;
      if (first && isHead() && first.state !== 'ended') keepHosts(first);
      draw();
      await showRank();
      if (isHead()) await showCurves();
      if (first && first.state === 'ended' && isHead()) {
        await keepRanks(first);
        over = true;
        ask('api/seen?page=' + page).catch(() => {});
        draw();
        return trouble('The job has ended; this is how it was.');
      }
    } catch (error) {
      trouble(error instanceof TypeError ? 'dtrun does not answer: it has ended, or cannot be reached.' : error.message);
      await new Promise(then => setTimeout(then, 2000));
    }
    const many = shown && shown.jobs.some(job => job.hosts.length > 100);
    await new Promise(then => setTimeout(then, many ? 2000 : isHead() ? 250 : 1000));
  }
}
readTheme();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readTheme(); if (shown) draw(); });
if (key) look();
else trouble('The address has no key: open the one that dtrun has printed, with what follows the #.');
