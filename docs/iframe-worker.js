// Search in pages that are opened from a disk. Browsers refuse to start workers there, so the searching script runs in
// a hidden frame, which has the same events. Elsewhere this file does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = this.frame.contentDocument.createElement("script");
          script.src = new URL(source, document.baseURI).href;
          script.onload = done;
          script.onerror = failed;
          this.frame.contentDocument.body.append(script);
        });
      this.inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
