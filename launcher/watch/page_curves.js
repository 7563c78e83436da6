// Small curves over time: a band from the lowest to the highest, and a line for the middle.
const curveNames = [
  {name: 'steps/s', unit: ''}, {name: 'GPUs busy', unit: ' %', most: 100}, {name: 'GPU memory', unit: ' %', most: 100},
  {name: 'load, of processors', unit: ' %'}, {name: 'memory of hosts', unit: ' %', most: 100}];
const spans = [['30 min', 1800], ['3 h', 10800], ['24 h', 86400]];

class Curves {
  constructor(id, title) {
    this.points = [];
    this.span = 1800;
    this.element = make('section', 'card', null, []);
    this.element.id = id;
    this.element.hidden = true;
    this.title = make('h2', '', title);
    this.tools = make('div', 'tools', null, [this.title]);
    this.buttons = spans.map(([name, seconds]) => {
      const button = make('button', '', name);
      button.onclick = () => { this.span = seconds; this.draw(); };
      this.tools.append(button);
      return button;
    });
    this.note = make('span', 'soft', '');
    this.note.setAttribute('role', 'status');
    this.tools.append(this.note);
    this.charts = curveNames.map((_, index) => this.chart(index));
    this.axis = make('div', 'axis', null, [make('span', ''), make('span', '')]);
    this.element.append(this.tools, make('div', 'curves', null, this.charts.map(chart => chart.box)), this.axis);
  }
  chart(index) {
    const template = make('template');
    template.innerHTML = '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img">' +
      '<path class="band"/><path class="middle"/><path class="mark"/></svg>';
    const svg = template.content.firstChild;
    const [band, middle, mark] = svg.children;
    const chart = {svg, band, middle, mark, value: make('span', '', '')};
    chart.box = make('div', 'curve', null, [make('div', 'head', null, [make('span', 'soft', curveNames[index].name), chart.value]), chart.svg]);
    chart.svg.onpointermove = event => {
      const box = chart.svg.getBoundingClientRect();
      this.tell((event.clientX - box.left) / box.width);
    };
    chart.svg.onpointerleave = () => this.tell(null);
    return chart;
  }
  // Points from a head: those of a time that is known already are newer.
  add(rows) {
    if (!rows.length) return;
    const first = rows[0][0];
    this.points = this.points.filter(point => point[0] < first).concat(rows);
    this.draw();
  }
  last() { return this.points.length ? this.points[this.points.length - 1][0] : 0; }
  shown() {
    const since = this.last() - this.span;
    return this.points.filter(point => point[0] >= since);
  }
  text(index, point, withSpread) {
    const [low, middle, high] = point.slice(1 + 3 * index, 4 + 3 * index);
    if (middle === null || middle === undefined) return '–';
    const short = value => value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toPrecision(2);
    const spread = withSpread && short(low) !== short(high) ? ' (' + short(low) + '–' + short(high) + ')' : '';
    return short(middle) + spread + curveNames[index].unit;
  }
  draw() {
    this.buttons.forEach((button, index) => button.setAttribute('aria-pressed', spans[index][1] === this.span ? 'true' : 'false'));
    const points = this.shown();
    this.element.hidden = points.length < 2;
    if (points.length < 2) return;
    const from = points[0][0], to = this.last();
    const x = point => (1000 * (point[0] - from) / Math.max(1, to - from)).toFixed(1);
    this.charts.forEach((chart, index) => {
      const known = points.filter(point => point[2 + 3 * index] !== null);
      chart.box.hidden = known.length < 2;
      if (known.length < 2) return;
      const most = curveNames[index].most || 1.1 * Math.max(1e-9, ...known.map(point => point[3 + 3 * index]));
      const y = value => (98 - 96 * Math.min(1, value / most)).toFixed(1);
      const line = (list, part) => list.map(point => x(point) + ' ' + y(point[part + 3 * index])).join('L');
      chart.band.setAttribute('d', 'M' + line(known, 3) + 'L' + line([...known].reverse(), 1) + 'Z');
      chart.middle.setAttribute('d', 'M' + line(known, 2));
      set(chart.value, 'textContent', this.text(index, known[known.length - 1], true));
      chart.svg.setAttribute('aria-label', curveNames[index].name + ': ' + chart.value.textContent);
    });
    set(this.axis.firstChild, 'textContent', clock(from));
    set(this.axis.lastChild, 'textContent', clock(to));
  }
  // What was at a place of the axis, in all curves.
  tell(share) {
    const points = this.shown();
    const at = share === null || points.length < 2 ? null : points[0][0] + share * (this.last() - points[0][0]);
    const near = at === null ? null : points.reduce((best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);
    this.charts.forEach((chart, index) => {
      chart.mark.setAttribute('d', near ? 'M' + 1000 * share + ' 0V100' : '');
      if (near) set(chart.value, 'textContent', this.text(index, near, true));
    });
    set(this.note, 'textContent', near ? 'at ' + clock(near[0]) : '');
    if (!near) this.draw();
  }
}
