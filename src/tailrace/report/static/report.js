"use strict";
// The frozen report: every chart is known when the page opens.
(() => {
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  for (const [id, spec] of Object.entries(specs)) {
    const element = document.getElementById(id);
    if (element) TailraceCharts.draw(element, spec);
  }
})();
