// The charts of a report: from what picture.go says to options of ECharts, in the reader's
// browser. svg.go draws the same for --svg.
"use strict";

var arraysim = (function () {
  // Okabe and Ito's colours, told apart by all kinds of colour vision; the order gives
  // neighbours different lightness too.
  var colours = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#999999"];
  var dashes = ["solid", "dashed", "dotted"];

  function number(x) {
    if (x === null || x === undefined) return "-";
    var a = Math.abs(x);
    return a >= 1000 ? String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ",") : a >= 10 ? x.toFixed(1) : a >= 0.1 ? x.toFixed(2) : a === 0 ? "0" : x.toPrecision(2);
  }

  function two(n) { return n < 10 ? "0" + n : "" + n; }

  function clock(ms, long) {
    var d = new Date(ms);
    return two(d.getUTCHours()) + ":" + two(d.getUTCMinutes()) + (long || d.getUTCSeconds() ? ":" + two(d.getUTCSeconds()) : "");
  }

  function escape(s) {
    return String(s).replace(/[&<>"]/g, function (c) { return { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]; });
  }

  function paint(dark) {
    return dark
      ? { text: "#e6e6e6", faint: "#9a9a9a", grid: "#3a3d42", mark: "rgba(213,94,0,0.28)", back: "#1b1d20" }
      : { text: "#1d1d1f", faint: "#5c5f66", grid: "#dcdfe4", mark: "rgba(213,94,0,0.16)", back: "#ffffff" };
  }

  function axis(c, name, extra) {
    var a = {
      name: name, nameLocation: "middle", nameTextStyle: { color: c.faint, fontSize: 12 }, axisLine: { show: true, lineStyle: { color: c.faint } },
      axisLabel: { color: c.text, fontSize: 11, hideOverlap: true }, splitLine: { lineStyle: { color: c.grid } }
    };
    for (var k in extra) a[k] = extra[k];
    return a;
  }

  function marks(p, c) {
    if (!p.marks) return undefined;
    return {
      silent: true, itemStyle: { color: c.mark }, label: { show: true, color: c.faint, fontSize: 11, position: "insideTop" },
      data: p.marks.map(function (m) { return [{ name: m.name, xAxis: m.from }, { xAxis: m.to }]; })
    };
  }

  function lines(p, c) {
    var legend = p.lines.length > 1;
    return {
      legend: legend ? { type: "scroll", top: 0, textStyle: { color: c.text, fontSize: 11 }, pageTextStyle: { color: c.text } } : undefined,
      grid: { left: 70, right: p.y.length > 1 ? 70 : 24, top: legend ? 40 : 20, bottom: 46 },
      tooltip: {
        trigger: "axis", confine: true,
        formatter: function (rows) {
          var named = rows.filter(function (r) { return r.value[1] !== null; }).sort(function (a, b) { return b.value[1] - a.value[1]; }).slice(0, 14);
          return clock(rows[0].value[0], true) + named.map(function (r) {
            return "<br>" + r.marker + escape(r.seriesName) + " <b>" + number(r.value[1]) + "</b> " + p.y[p.lines[r.seriesIndex].axis || 0].unit;
          }).join("");
        }
      },
      xAxis: axis(c, "time (UTC)", { type: "time", nameGap: 28, splitLine: { show: false }, axisLabel: { color: c.text, fontSize: 11, hideOverlap: true, formatter: function (t) { return clock(t); } } }),
      yAxis: p.y.map(function (y, i) {
        return axis(c, y.name + " (" + y.unit + ")", { type: "value", nameGap: 50, max: y.max || undefined, min: 0, position: i ? "right" : "left", splitLine: { show: i === 0, lineStyle: { color: c.grid } }, axisLabel: { color: c.text, fontSize: 11, formatter: number } });
      }),
      series: p.lines.map(function (l, i) {
        return {
          type: "line", name: l.name, yAxisIndex: l.axis || 0, stack: l.stack || undefined, showSymbol: l.values.length < 40, symbolSize: 5, connectNulls: false, step: l.values.length < 40 ? "start" : undefined,
          lineStyle: { width: l.thin ? 1 : 2, type: l.dash ? "dashed" : dashes[Math.floor(i / colours.length) % dashes.length] },
          areaStyle: l.area ? { opacity: 0.35 } : undefined, emphasis: { focus: "series" },
          data: l.values.map(function (v, k) { return [p.x[k], v]; }),
          markArea: i === 0 ? marks(p, c) : undefined
        };
      })
    };
  }

  function bars(p, c) {
    return {
      legend: { top: 0, textStyle: { color: c.text, fontSize: 11 } },
      grid: { left: 140, right: 30, top: 66, bottom: 46 },
      tooltip: {
        trigger: "axis", axisPointer: { type: "shadow" }, confine: true,
        formatter: function (rows) {
          return escape(rows[0].name) + rows.map(function (r) {
            return "<br>" + r.marker + escape(r.seriesName) + " <b>" + number(r.value) + "</b> " + p.y[p.bars[r.seriesIndex].axis || 0].unit;
          }).join("");
        }
      },
      yAxis: axis(c, "", { type: "category", data: p.names, inverse: true, axisLabel: { color: c.text, fontSize: 11, width: 130, overflow: "truncate" } }),
      xAxis: p.y.map(function (y, i) {
        return axis(c, y.name + " (" + y.unit + ")", { type: "value", min: 0, nameGap: 26, position: i ? "top" : "bottom", splitLine: { show: i === 0, lineStyle: { color: c.grid } }, axisLabel: { color: c.text, fontSize: 11, formatter: number } });
      }),
      series: p.bars.map(function (b) {
        return { type: "bar", name: b.name, xAxisIndex: b.axis || 0, data: b.values, barMaxWidth: 14, label: { show: true, position: "right", color: c.faint, fontSize: 10, formatter: function (r) { return number(r.value); } } };
      })
    };
  }

  function heat(p, c, dark) {
    return {
      grid: { left: 130, right: 24, top: 24, bottom: 92 },
      tooltip: { confine: true, formatter: function (r) { return escape(p.names[r.value[1]]) + "<br>" + clock(p.x[r.value[0]], true) + " <b>" + number(Math.pow(10, r.value[2])) + "</b> ms"; } },
      xAxis: axis(c, "time (UTC)", { type: "category", data: p.x.map(function (t) { return clock(t); }), nameGap: 28, splitLine: { show: false } }),
      yAxis: axis(c, "", { type: "category", data: p.names, inverse: true, axisLabel: { color: c.text, fontSize: 9, width: 120, overflow: "truncate" } }),
      visualMap: {
        min: p.low, max: p.high, calculable: true, orient: "horizontal", left: "center", bottom: 0, textStyle: { color: c.text }, itemHeight: 160,
        formatter: function (v) { return number(Math.pow(10, v)) + " ms"; },
        // Cividis: even in lightness, and the same for all kinds of colour vision.
        inRange: { color: dark ? ["#00204d", "#31446b", "#666970", "#958f78", "#cab969", "#ffea46"] : ["#fff9c9", "#e8d462", "#b0a473", "#7c7b78", "#444e6c", "#00204d"] }
      },
      series: [{
        type: "heatmap", data: p.cells, emphasis: { itemStyle: { borderColor: "#d55e00", borderWidth: 1 } },
        markArea: p.spans ? { silent: true, itemStyle: { color: "rgba(0,0,0,0)", borderColor: "#d55e00", borderWidth: 2 }, label: { color: "#d55e00", position: "top", fontSize: 11 }, data: p.spans.map(function (m) { return [{ name: m.name, xAxis: m.from }, { xAxis: m.to }]; }) } : undefined
      }]
    };
  }

  function option(p, dark) {
    var c = paint(dark);
    var o = p.kind === "heat" ? heat(p, c, dark) : p.kind === "bars" ? bars(p, c) : lines(p, c);
    o.useUTC = true;
    o.animation = false;
    o.color = colours;
    o.backgroundColor = c.back;
    o.textStyle = { fontFamily: "system-ui, sans-serif" };
    o.aria = { enabled: true };
    return o;
  }

  return { option: option, height: function (p) { return p.kind === "heat" ? Math.max(320, 120 + 11 * p.names.length) : p.kind === "bars" ? 130 + 38 * p.names.length : 330; } };
})();
