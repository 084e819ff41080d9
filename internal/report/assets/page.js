"use strict";
(function () {
  var data = JSON.parse(document.getElementById("data").textContent);
  var charts = [];
  var media = window.matchMedia("(prefers-color-scheme: dark)");
  var chosen = null;

  function dark() { return chosen === null ? media.matches : chosen; }

  function draw(asDark) {
    document.documentElement.dataset.theme = asDark ? "dark" : "light";
    charts.forEach(function (c) { c.chart.setOption(arraysim.option(c.picture, asDark), true); });
  }

  data.forEach(function (p) {
    var at = document.getElementById("chart-" + p.id);
    at.style.height = arraysim.height(p) + "px";
    charts.push({ picture: p, chart: echarts.init(at, null, { renderer: "svg" }) });
  });
  draw(dark());
  window.addEventListener("resize", function () { charts.forEach(function (c) { c.chart.resize(); }); });
  media.addEventListener("change", function () { draw(dark()); });
  document.getElementById("theme").addEventListener("click", function () { chosen = !dark(); draw(chosen); });
  window.addEventListener("beforeprint", function () { draw(false); charts.forEach(function (c) { c.chart.resize({ width: 680 }); }); });
  window.addEventListener("afterprint", function () { charts.forEach(function (c) { c.chart.resize({ width: "auto" }); }); draw(dark()); });
})();
