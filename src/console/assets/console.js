"use strict";
// Puts panels in place as the server sends them anew. Without it pages are as they were when they were opened.
(() => {
  const path = document.body.dataset.live;
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  if (!path || !window.EventSource) return;
  let source = null;
  let isPaused = false;
  let heard = Date.now();

  const show = (event) => {
    heard = Date.now();
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      const panel = document.getElementById(id);
      // What somebody uses at this moment, or has marked to copy, stays.
      const marked = window.getSelection();
      const isMarked = marked && !marked.isCollapsed && panel && marked.containsNode(panel, true);
      if (panel && !isMarked && !panel.contains(document.activeElement)) {
        panel.innerHTML = html;
        panel.parentElement.hidden = html === "";
      }
    }
    if (state.textContent !== "") state.textContent = "";
  };

  // A browser has few connections to one server: a page that nobody sees keeps none.
  const follow = () => {
    const wanted = !isPaused && !document.hidden;
    if (wanted && !source) {
      heard = Date.now();
      source = new EventSource(path);
      source.onmessage = show;
      source.onerror = () => {
        // The server ends a stream now and then, and the browser comes again by itself.
        if (source && source.readyState === EventSource.CLOSED) {
          source = null;
          state.textContent = "Not connected.";
          setTimeout(follow, 5000);
        }
      };
    } else if (!wanted && source) {
      source.close();
      source = null;
    }
  };

  // News come each second: figures that stand still because the server is gone, or hangs, are not to look alive.
  setInterval(() => {
    const silent = Math.floor((Date.now() - heard) / 1000);
    if (source && silent >= 5) state.textContent = `No news from the server for ${silent} s.`;
  }, 1000);

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    state.textContent = isPaused ? "Paused." : "";
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", () => { if (source) { source.close(); source = null; } });
  follow();
})();
