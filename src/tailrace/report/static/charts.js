"use strict";
// Charts of latency. TailraceCharts.draw(element, spec) draws one, and draws it anew whenever its width, the colours
// or the medium change; calling it again with another spec updates it. What a spec holds is said in charts.py.
const TailraceCharts = (() => {
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const PAPER = { large: 800, strip: 800, small: 400, sharpness: 3 };
  // Height for width, and between which bounds.
  const SHAPES = { large: [0.5, 240, 380], strip: [0.5, 170, 190], small: [0.55, 210, 300] };
  const drawn = new Map();
  let onPaper = false;

  // ----- numbers

  function figure(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size < 9.995) return value.toFixed(2);
    return size < 99.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
  }

  const tick = (value) => (value >= 1000 ? value.toLocaleString("en") : String(Number(value.toPrecision(3))));

  // How far to the right a percentile lies: one step for each nine.
  const nines = (percent) => -Math.log10(1 - percent / 100);
  const percentOf = (x) => 100 * (1 - Math.pow(10, -x));
  const PERCENTILES = [50, 90, 99, 99.9, 99.99, 99.999];

  function roundDown(value) {
    const decade = Math.pow(10, Math.floor(Math.log10(value) + 1e-9));
    return decade * [5, 2, 1].find((step) => decade * step <= value * 1.000001);
  }

  function roundUp(value) {
    const decade = Math.pow(10, Math.floor(Math.log10(value) + 1e-9));
    return decade * [1, 2, 5, 10].find((step) => decade * step >= value * 0.999999);
  }

  // Ticks of a logarithmic axis: 1, 2, 5 where there is room, else whole decades.
  function logTicks(low, high, room) {
    const fine = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++) {
      for (const step of [1, 2, 5]) fine.push(Number((step * Math.pow(10, decade)).toPrecision(3)));
    }
    const inside = fine.filter((value) => value >= low * 0.999 && value <= high * 1.001);
    if (inside.length * 22 <= room) return inside;
    const coarse = inside.filter((value) => Number.isInteger(Number(Math.log10(value).toFixed(6))));
    return coarse.length > 1 ? coarse : [inside[0], inside[inside.length - 1]];
  }

  // ----- colours

  function palette(element) {
    const style = getComputedStyle(element);
    const named = (name) => style.getPropertyValue(name).trim();
    return {
      ink: named("--ink"),
      muted: named("--muted"),
      rule: named("--rule"),
      ground: named("--ground"),
      boundary: named("--boundary"),
      lane: (number) => named(`--lane-${number}`),
    };
  }

  function faded(context, alpha, paint) {
    context.save();
    context.globalAlpha = alpha;
    paint();
    context.restore();
  }

  // ----- axes

  function scaleOfX(spec) {
    const x = spec.x;
    if (x.scale === "percentile") {
      const most = Math.max(...spec.series.map((each) => nines(each.x[each.x.length - 1])));
      return { time: false, range: () => [nines(50), Math.max(most + 0.15, 2)] };
    }
    if (x.scale === "steps") return { time: false, range: () => [-0.3, x.names.length - 0.7] };
    return { time: false, range: (u, low, high) => [x.low ?? low, x.high ?? high] };
  }

  function axisOfX(spec) {
    const x = spec.x;
    if (x.scale === "percentile") {
      return {
        splits: (u) => PERCENTILES.map(nines).filter((at) => at <= u.scales.x.max + 1e-9),
        values: (u, splits) => splits.map((at) => `${Number(percentOf(at).toFixed(3))} %`),
      };
    }
    if (x.scale === "steps") {
      return {
        splits: () => x.names.map((_, place) => place),
        values: (u, splits) => {
          const every = Math.ceil((splits.length * 60) / Math.max(u.bbox.width / u.sharpness, 60));
          return splits.map((place) => (place % every ? null : x.names[place]));
        },
      };
    }
    return { values: (u, splits) => splits.map(tick), space: 50 };
  }

  function xInWords(spec, at) {
    if (spec.x.scale === "percentile") return `${Number(percentOf(at).toFixed(4))} %`;
    return spec.x.scale === "steps" ? spec.x.names[at] : `${tick(at)} s`;
  }

  function rangeOfY(spec) {
    const values = spec.series.flatMap((each) => each.y).filter((value) => value !== null && value > 0);
    const low = spec.y.low ?? Math.min(...values);
    const high = spec.y.high ?? Math.max(...values);
    const range = [roundDown(low / 1.05), roundUp(high * 1.05)];
    return range[1] / range[0] < 5 ? [range[0] / 2, range[1] * 2] : range;
  }

  // ----- what uPlot does not draw

  // Batch boundaries: lines from top to bottom, or short strokes at the foot where lines would be a curtain.
  function paintMarks(u, spec, colours) {
    const marks = (spec.marks || []).filter(({ x }) => x >= u.scales.x.min && x <= u.scales.x.max);
    if (!marks.length) return;
    const { left, top, width, height } = u.bbox;
    const dense = width / marks.length < 14 * u.sharpness;
    const context = u.ctx;
    context.save();
    context.strokeStyle = colours.boundary;
    context.lineWidth = 1.25 * u.sharpness;
    context.fillStyle = colours.ink;
    context.font = `600 ${12 * u.sharpness}px ${FONT}`;
    context.textBaseline = "top";
    for (const mark of marks) {
      const x = Math.min(Math.max(Math.round(u.valToPos(mark.x, "x", true)), left), left + width);
      context.beginPath();
      context.moveTo(x, dense && !mark.text ? top + height - 7 * u.sharpness : top);
      context.lineTo(x, top + height);
      context.stroke();
      if (mark.text) {
        context.textAlign = x > left + width / 2 ? "right" : "left";
        context.fillText(mark.text, x + (x > left + width / 2 ? -4 : 4) * u.sharpness, top + 2 * u.sharpness);
      }
    }
    context.restore();
  }

  // A name at the end of each line, so that nobody needs its colour. Names that would overlap move apart.
  function paintLabels(u, spec, colours) {
    const labels = spec.series
      .map((each, place) => ({ each, place }))
      .filter(({ each }) => !each.faint)
      .map(({ each, place }) => labelAt(u, spec, each, u.data[place + 1]))
      .filter(Boolean)
      .sort((one, other) => one.y - other.y);
    const apart = 14 * u.sharpness;
    for (let place = 1; place < labels.length; place++) {
      labels[place].y = Math.max(labels[place].y, labels[place - 1].y + apart);
    }
    const over = labels.length ? labels[labels.length - 1].y - (u.bbox.top + u.bbox.height - apart / 2) : 0;
    if (over > 0) {
      for (let place = labels.length - 1; place >= 0; place--) {
        const below = place + 1 < labels.length ? labels[place + 1].y - apart : u.bbox.top + u.bbox.height - apart / 2;
        labels[place].y = Math.min(labels[place].y, below);
      }
    }
    const context = u.ctx;
    context.save();
    context.font = `600 ${12 * u.sharpness}px ${FONT}`;
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const label of labels) {
      context.textAlign = label.align;
      context.lineWidth = 4 * u.sharpness;
      context.strokeStyle = colours.ground;
      context.strokeText(label.text, label.x, label.y);
      context.fillStyle = colours.lane(label.colour);
      context.fillText(label.text, label.x, label.y);
    }
    context.restore();
  }

  function labelAt(u, spec, each, values) {
    let last = values.length - 1;
    while (last >= 0 && (values[last] === null || values[last] === undefined)) last--;
    if (last < 0) return null;
    const y = u.valToPos(values[last], "y", true);
    const outside = spec.x.scale !== "percentile";
    const x = outside ? u.bbox.left + u.bbox.width + 5 * u.sharpness : u.valToPos(u.data[0][last], "x", true);
    return {
      text: each.label,
      colour: each.colour,
      align: outside ? "left" : "right",
      x,
      y: outside ? y : Math.max(y - 10 * u.sharpness, u.bbox.top + 7 * u.sharpness),
    };
  }

  // ----- one chart

  // Series need not share their x values; uPlot wants them in one table.
  function tableOf(spec) {
    const place = spec.x.scale === "percentile" ? nines : (x) => x;
    return uPlot.join(spec.series.map((each) => [each.x.map(place), each.y]));
  }

  function seriesOf(spec, colours, sharpness) {
    const lines = spec.series.map((each) => ({
      label: each.label,
      stroke: colours.lane(each.colour),
      width: (each.width || 2) * sharpness,
      dash: (each.dash || []).map((length) => length * sharpness),
      alpha: each.faint ? 0.45 : 1,
      spanGaps: spec.x.scale !== "seconds",
      points: { show: Boolean(each.dots), size: 7 * sharpness, fill: colours.lane(each.colour) },
    }));
    return [{}, ...lines];
  }

  function optionsOf(element, spec, width, sharpness) {
    const colours = palette(element);
    const narrow = width < 460;
    const [slope, least, most] = SHAPES[sizeOf(element)];
    const height = Math.round(Math.min(Math.max(width * slope, least), most));
    const axis = {
      stroke: colours.muted,
      font: `${12 * sharpness}px ${FONT}`,
      labelFont: `${12 * sharpness}px ${FONT}`,
      labelSize: 20 * sharpness,
      labelGap: 2 * sharpness,
      gap: 5 * sharpness,
      grid: { stroke: colours.rule, width: sharpness },
      ticks: { stroke: colours.rule, width: sharpness, size: 5 * sharpness },
      border: { show: true, stroke: colours.muted, width: sharpness },
    };
    const names = spec.series.filter((each) => !each.faint).map((each) => each.label);
    const longest = Math.max(...names.map((name) => name.length));
    // The legend above has every name; what is too narrow for names goes without them.
    const labelled = names.length <= 6 && (longest < 5 || !(narrow || sizeOf(element) === "small"));
    const right = labelled && spec.x.scale !== "percentile" ? 12 + 7 * longest : 14;
    const across = axisOfX(spec);
    return {
      width: width * sharpness,
      height: height * sharpness,
      padding: [10, right, 0, 0].map((each) => each * sharpness),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: scaleOfX(spec), y: { distr: 3, log: 10, range: () => rangeOfY(spec) } },
      axes: [
        { ...axis, ...across, space: (across.space || 30) * sharpness, label: spec.x.label, size: 28 * sharpness },
        {
          ...axis,
          label: spec.y.label,
          size: 46 * sharpness,
          splits: (u, number, low, high) => logTicks(low, high, u.bbox.height / sharpness || height),
          values: (u, splits) => splits.map(tick),
          filter: (u, splits) => splits,
        },
      ],
      series: seriesOf(spec, colours, sharpness),
      hooks: {
        init: [(u) => { u.sharpness = sharpness; }],
        drawAxes: [(u) => faded(u.ctx, 0.9, () => paintMarks(u, spec, colours))],
        draw: [(u) => labelled && paintLabels(u, spec, colours)],
        setCursor: [(u) => readOut(u, element, spec)],
      },
    };
  }

  // The figures under the cursor, in words below the chart.
  function readOut(u, element, spec) {
    const place = u.cursor.idx;
    const output = element.parentElement.querySelector(".readout");
    if (!output) return;
    if (place === null || place === undefined) {
      output.textContent = "";
      return;
    }
    const figures = spec.series
      .map((each, number) => ({ each, values: u.data[number + 1] }))
      .filter(({ each }) => !each.faint)
      .map(({ each, values }) => {
        let at = place;
        while (at > 0 && (values[at] === null || values[at] === undefined) && spec.x.scale === "percentile") at--;
        return `${each.label} ${figure(values[at])}`;
      });
    output.textContent = `${xInWords(spec, u.data[0][place])}: ${figures.join(" · ")} ms`;
  }

  const sizeOf = (element) => ["strip", "small"].find((size) => element.closest(`figure.${size}`)) || "large";

  function paint(element) {
    const state = drawn.get(element);
    const width = onPaper ? PAPER[sizeOf(element)] : Math.floor(element.clientWidth);
    // Nothing to draw on yet: inside a closed <details>, for one.
    if (width < 40) return;
    if (state.plot) state.plot.destroy();
    const sharpness = onPaper ? PAPER.sharpness : 1;
    state.width = width;
    state.plot = new uPlot(optionsOf(element, state.spec, width, sharpness), tableOf(state.spec), element);
  }

  function paintAll() {
    for (const element of drawn.keys()) paint(element);
  }

  const widths = new ResizeObserver((entries) => {
    if (onPaper) return;
    for (const { target } of entries) {
      const state = drawn.get(target);
      if (state && Math.floor(target.clientWidth) !== state.width) requestAnimationFrame(() => paint(target));
    }
  });

  // On paper a chart has a width of its own, light colours and more pixels; the stylesheet fits it into its column.
  function setPaper(paper) {
    if (paper === onPaper) return;
    onPaper = paper;
    paintAll();
  }

  const print = matchMedia("print");
  print.addEventListener("change", () => setPaper(print.matches));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
  addEventListener("beforeprint", () => setPaper(true));
  addEventListener("afterprint", () => setPaper(false));

  function draw(element, spec) {
    const state = drawn.get(element) || { plot: null, width: 0 };
    state.spec = spec;
    drawn.set(element, state);
    paint(element);
    widths.observe(element);
  }

  return { draw };
})();
