// The map of a job: a line for each host, with its ranks and GPUs as cells. Elements are made once and then changed, so
// that a thousand hosts can be shown.
const words = {w: 'not started', r: 'running', l: 'late', e: 'ended well', f: 'failed', d: 'ended by dtrun', x: 'lost with its host'};
const classes = {w: 'waiting', r: 'running', l: 'running late', e: 'ended_well', f: 'failed', d: 'ended_by_dtrun', x: 'lost'};
const marks = {f: '✕', x: '?'};

// A colour between two, and black or white on it, whichever can be read.
function heat(percent) {
  const share = Math.max(0, Math.min(1, percent / 100));
  const color = theme.cold.map((part, index) => Math.round(part + share * (theme.hot[index] - part)));
  const light = color.map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  return ['rgb(' + color.join(',') + ')', luminance > 0.179 ? '#000' : '#fff'];
}
const theme = {cold: [233, 237, 242], hot: [27, 79, 174]};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const parts = name => style.getPropertyValue(name).trim().slice(1).match(/../g).map(pair => parseInt(pair, 16));
  theme.cold = parts('--cold');
  theme.hot = parts('--hot');
}

class HostRow {
  constructor(map) {
    this.map = map;
    this.name = make('span', 'name');
    this.ranks = make('div', 'cells');
    this.heats = make('div', 'cells');
    this.load = make('span', 'number');
    this.memory = make('span', 'number');
    this.load.dataset.name = 'load';
    this.memory.dataset.name = 'memory';
    this.rest = make('span');
    this.why = make('div', 'why');
    this.element = make('div', 'host', null, [this.name, this.ranks, this.heats, this.load, this.memory, this.rest, this.why]);
    this.cells = [];
    this.hot = [];
  }
  update(host, job) {
    this.host = host;
    set(this.name, 'textContent', host.host);
    set(this.name, 'title', host.host);
    host.ranks.forEach((rank, index) => this.updateRank(host, job, rank, index));
    trim(this.cells, host.ranks.length);
    const heats = this.map.hasGpus ? host.gpu || [] : host.cpu || [];
    heats.forEach((value, index) => this.updateHeat(host, value, index));
    trim(this.hot, heats.length);
    const high = host.load !== undefined && host.load >= 1.5 * host.processors && host.load >= host.processors + 1;
    set(this.load, 'textContent', host.load === undefined ? '' : host.load.toFixed(1) + ' of ' + host.processors);
    set(this.load, 'className', 'number' + (high ? ' high' : ''));
    set(this.memory, 'textContent', host.memory === undefined ? '' : host.memory + ' %');
    set(this.memory, 'className', 'number' + (host.memory >= 97 ? ' high' : ''));
    const others = (host.others || []).flatMap((count, index) => count > 0 ? [index] : []);
    set(this.rest, 'className', others.length ? 'high' : 'soft');
    set(this.rest, 'textContent', others.length ? 'others on GPU ' + others.join(', ') : host.state === 'joined' ? '' : host.state === 'left' ? 'nothing runs there' :
      host.state + (host.doing ? ': ' + host.doing : ''));
    set(this.why, 'textContent', host.why || '');
    set(this.why, 'hidden', !host.why);
  }
  updateRank(host, job, rank, index) {
    let cell = this.cells[index];
    if (!cell) {
      cell = make('button', 'cell rank');
      cell.onclick = () => this.map.choose(job.job, this.host.ranks[index], this.host.host);
      this.cells.push(cell);
      this.ranks.append(cell);
    }
    const letter = host.states[index];
    const behind = host.behind ? host.behind[index] : 0;
    set(cell, 'textContent', (rank === null ? '·' : rank) + (marks[letter] || ''));
    set(cell, 'className', 'cell rank ' + (classes[letter] || ''));
    const about = [(rank === null ? 'a place' : 'rank ' + rank) + ' on ' + host.host + ': ' + (words[letter] || '?')];
    if (behind > 0) about.push(behind + (behind === 1 ? ' step' : ' steps') + ' behind');
    if (host.pace && host.pace[index] !== null) about.push(host.pace[index] + ' steps/s');
    set(cell, 'title', about.join(', '));
    cell.setAttribute('aria-pressed', this.map.isChosen(job.job, rank) && rank !== null ? 'true' : 'false');
  }
  updateHeat(host, value, index) {
    let cell = this.hot[index];
    if (!cell) {
      cell = make('span', 'cell');
      this.hot.push(cell);
      this.heats.append(cell);
    }
    const others = host.others && host.others[index] > 0;
    const [color, ink] = heat(value === null ? 0 : value);
    set(cell, 'textContent', value === null ? '' : value);
    if (cell.heat !== color) {
      cell.heat = cell.style.background = color;
      cell.style.color = ink;
    }
    set(cell, 'className', 'cell heat' + (others ? ' others' : ''));
    set(cell, 'title', this.map.hasGpus ? 'GPU ' + index + ' on ' + host.host + ': ' + value + ' % busy, memory ' + host.gpu_memory[index] + ' %' +
      (others ? ', used by others' : '') : 'rank ' + host.ranks[index] + ': ' + value + ' % of a processor');
  }
}

class HostMap {
  constructor(choose, isChosen) {
    this.choose = choose;
    this.isChosen = isChosen;
    this.rows = new Map();
    this.onlyTrouble = false;
    this.all = make('button', '', 'all');
    this.bad = make('button', '', 'in trouble');
    this.search = make('input');
    this.search.placeholder = 'host or rank';
    this.search.setAttribute('aria-label', 'show only this host or rank');
    this.all.onclick = () => { this.onlyTrouble = false; this.filter(); };
    this.bad.onclick = () => { this.onlyTrouble = true; this.filter(); };
    this.search.oninput = () => this.filter();
    this.legend = make('div', 'legend');
    this.none = make('p', 'soft', 'Nothing is in trouble.');
    this.titleHeat = make('span', '', '');
    this.title = make('div', 'host title', null, [make('span', '', 'host'), make('span', '', 'ranks: click for output'), this.titleHeat,
      make('span', 'number', 'load'), make('span', 'number', 'memory'), make('span')]);
    this.list = make('div', 'hosts', null, [this.title]);
    this.element = make('section', 'card', null, [make('div', 'tools', null, [this.all, this.bad, this.search, this.legend]), this.list, this.none]);
  }
  update(job) {
    const most = (list, of) => list.reduce((max, each) => Math.max(max, of(each)), 0);
    this.hasGpus = job.hosts.some(host => host.gpu);
    set(this.titleHeat, 'textContent', this.hasGpus ? 'GPUs, % busy' : job.hosts.some(host => host.cpu) ? 'processor of each rank, %' : '');
    const wide = count => Math.max(2, Math.min(this.hasGpus ? 8 : 16, count));
    const digits = String(most(job.hosts, host => Math.max(0, ...host.ranks))).length + 1;
    this.list.style.setProperty('--cell', Math.max(1.75, 0.42 * digits + 0.4).toFixed(2) + 'rem');
    this.title.children[3].hidden = this.title.children[4].hidden = !job.hosts.some(host => host.load !== undefined);
    this.list.style.setProperty('--ranks', 'calc(' + wide(most(job.hosts, host => host.ranks.length)) + ' * var(--cell))');
    const heats = most(job.hosts, host => (this.hasGpus ? host.gpu || [] : host.cpu || []).length);
    this.list.style.setProperty('--cells', heats ? 'calc(' + wide(heats) + ' * 1.75rem)' : '0px');
    this.list.classList.toggle('many', job.hosts.length > 64);
    const there = new Set();
    const seen = new Set();
    for (const host of job.hosts) {
      let row = this.rows.get(host.host);
      if (!row) {
        row = new HostRow(this);
        this.rows.set(host.host, row);
        this.list.append(row.element);
      }
      row.update(host, job);
      there.add(host.host);
      for (const letter of host.states) seen.add(letter);
    }
    for (const [name, row] of this.rows) {
      if (there.has(name)) continue;
      row.element.remove();
      this.rows.delete(name);
    }
    const legend = [...seen].join('');
    if (this.legend.letters !== legend) {
      this.legend.letters = legend;
      this.legend.replaceChildren(...[...legend].map(letter => make('span', '', null,
        [make('span', 'swatch cell ' + (classes[letter] || '')), ' ' + (words[letter] || '?')])));
    }
    this.filter();
  }
  filter() {
    const text = this.search.value.trim();
    const wanted = /^\d+$/.test(text) ? Number(text) : null;
    let bad = 0, shown = 0;
    for (const [name, row] of this.rows) {
      const trouble = row.host.troubled || /[flx]/.test(row.host.states);
      bad += trouble;
      const fits = !text || name.includes(text) || (wanted !== null && row.host.ranks.includes(wanted));
      const hide = !fits || (this.onlyTrouble && !trouble);
      shown += !hide;
      set(row.element, 'hidden', hide);
    }
    set(this.all, 'textContent', 'all ' + this.rows.size);
    set(this.bad, 'textContent', bad + ' in trouble');
    this.all.setAttribute('aria-pressed', this.onlyTrouble ? 'false' : 'true');
    this.bad.setAttribute('aria-pressed', this.onlyTrouble ? 'true' : 'false');
    set(this.none, 'hidden', shown > 0);
    set(this.none, 'textContent', !this.rows.size ? 'No host takes part.' : text ? 'There is no such host or rank.' : 'Nothing is in trouble.');
  }
}
