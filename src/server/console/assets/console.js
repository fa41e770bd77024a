"use strict";
// Replaces panels as the server resends them. Without this script pages stay as they were when opened.
(() => {
  const path = document.body.dataset.live;
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  if (!path || !window.ReadableStream) return;
  let reading = null;
  let isPaused = false;
  let isOver = false;
  let refusal = "";
  let heard = Date.now();

  const show = (panels) => {
    heard = Date.now();
    refusal = "";
    for (const [id, html] of Object.entries(panels)) {
      const panel = document.getElementById(id);
      // Do not replace a panel that has the focus or selected text.
      const marked = window.getSelection();
      const isMarked = marked && !marked.isCollapsed && panel && marked.containsNode(panel, true);
      if (panel && !isMarked && !panel.contains(document.activeElement)) {
        panel.innerHTML = html;
        panel.parentElement.hidden = html === "";
      }
    }
    if (state.textContent !== "") state.textContent = "";
  };

  // An event is one line of data, and an empty line ends it.
  const read = async (body) => {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    for (let text = ""; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
    }
  };

  // A browser allows few connections per server, so a hidden page keeps none.
  const follow = async () => {
    if (isPaused || document.hidden || isOver) {
      if (reading) reading.abort();
      reading = null;
      return;
    }
    if (reading) return;
    const own = reading = new AbortController();
    let wait = 1;
    try {
      const answer = await fetch(path, { signal: own.signal, cache: "no-store" });
      if (answer.ok) {
        await read(answer.body);
      } else {
        // The body has the reason: too many open pages, or a user without permission.
        refusal = (await answer.text()).trim() || `The server answered with HTTP status ${answer.status}.`;
        isOver = answer.status === 403;
        wait = Number(answer.headers.get("Retry-After")) || 5;
        state.textContent = isOver ? `${refusal} Reload the page to sign in.` : refusal;
      }
    } catch {
      // The server is down or hung up, or the page is hidden.
    }
    // The server ends streams now and then, so reconnect.
    if (reading === own) {
      reading = null;
      setTimeout(follow, 1000 * wait);
    }
  };

  // Updates arrive each second. If the server is down or hangs, stale figures must not look current.
  setInterval(() => {
    const silent = Math.floor((Date.now() - heard) / 1000);
    const isWaiting = !isPaused && !document.hidden && !isOver && !refusal;
    if (isWaiting && silent >= 5) state.textContent = `No update from the server for ${silent} s.`;
  }, 1000);

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    state.textContent = isPaused ? "Paused." : "";
    heard = Date.now();
    follow();
  });
  document.addEventListener("visibilitychange", () => {
    heard = Date.now();
    follow();
  });
  window.addEventListener("pagehide", () => { if (reading) reading.abort(); });
  follow();
})();
