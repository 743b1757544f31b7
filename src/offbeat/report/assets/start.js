// Starts the page: the library that draws, which is packed, and then the page's own code. In a notebook the library
// comes with the first page of its kind; the others wait for it.
(async function start(kind, tries) {
  const text = (id) => document.getElementById(id)?.textContent;
  const say = (words) => {
    const said = document.createElement("p");
    said.textContent = words;
    document.querySelector("main").prepend(said);
  };
  const unpacked = (packed) => {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  let shared = {};
  try { shared = (parent.offbeat ??= {}); } catch { /* a notebook that lets nobody look out of a frame */ }
  if (text("library")) {
    if (typeof DecompressionStream === "undefined") return say("The figures need a browser of 2023 or later.");
    shared[kind] = await unpacked(text("library"));
  }
  if (!shared[kind] && tries) return setTimeout(start, 100, kind, tries - 1);
  if (!shared[kind]) {
    return say("The library that draws came with an earlier page, which is gone: "
      + "restart the notebook and run it from its beginning, or save the page to a file.");
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
