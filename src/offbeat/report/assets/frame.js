// A page in a frame of a notebook. The library that draws comes with the first page; the others wait for it.
(function start(kind, tries) {
  const text = (id) => document.getElementById(id)?.textContent;
  let shared = {};
  try { shared = (parent.offbeat ??= {}); } catch { /* a notebook that lets nobody look out of a frame */ }
  if (text("library")) shared[kind] = text("library");
  if (!shared[kind] && tries) return setTimeout(start, 100, kind, tries - 1);
  if (!shared[kind]) {
    const said = document.createElement("p");
    said.textContent = "The library that draws came with an earlier page, which is gone: "
      + "restart the notebook and run it from its beginning, or save the page to a file.";
    return document.querySelector("main").prepend(said);
  }
  try {  // light letters around the frame: a dark notebook, whatever the system's theme
    const ink = getComputedStyle(frameElement.parentElement).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    document.documentElement.dataset.around = ink.reduce((a, b) => a + b) > 382 ? "dark" : "light";
  } catch { /* the system's theme, then */ }
  for (const source of [shared[kind], text("code")]) {
    const script = document.createElement("script");
    script.textContent = source;
    document.body.append(script);
  }
})(document.currentScript.dataset.kind, 100);
