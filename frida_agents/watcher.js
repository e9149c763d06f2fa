// SPDX-License-Identifier: MIT
// The agent of `flagfinder watch --backend frida`: sets watchpoints on every thread, and has the native half handle what traps. No JavaScript runs at an access.
'use strict';

const NAMES = ['gum_invocation_context_get_nth_argument', 'gum_invocation_context_replace_nth_argument'];

let library = null;
let words = [];
let observer = null;
const watched = new Map();

function addressOf(name) {
  const bridge = new CModule(`extern void ${name} (void); void * find (void) { return (void *) ${name}; }`);
  return new NativeFunction(bridge.find, 'pointer', [])();
}

function watch(thread) {
  try {
    words.forEach(({ address, size, conditions }, i) => thread.setHardwareWatchpoint(i, ptr(address), size, conditions));
    watched.set(thread.id, thread);
  } catch (error) {
    send({ note: `thread ${thread.id} is not watched: ${error.message}` });
  }
}

rpc.exports = {
  // The program waits in the library's gate, on the one thread it has.
  start(path, ring, wanted) {
    library = Module.load(path);
    words = wanted;
    const functions = Memory.alloc(NAMES.length * Process.pointerSize);
    NAMES.forEach((name, i) => functions.add(i * Process.pointerSize).writePointer(addressOf(name)));
    const libc = Process.getModuleByName('libc.so.6');
    Interceptor.replace(libc.getExportByName('pthread_sigmask'), library.getExportByName('ff_sigmask'));
    const begin = new NativeFunction(library.getExportByName('ff_watch'), 'pointer', ['pointer', 'pointer']);
    const wrong = begin(Memory.allocUtf8String(ring), functions);
    if (!wrong.isNull()) throw new Error(wrong.readCString());
    Interceptor.attach(libc.getExportByName('sigaction'), { onEnter: library.getExportByName('ff_on_sigaction') });
    if (words.length === 0) return;
    observer = Process.attachThreadObserver({
      onAdded: watch,
      onRemoved: (thread) => { watched.delete(thread.id); },
    });
  },

  // The agent stays: what it replaced is in use.
  end() {
    new NativeFunction(library.getExportByName('ff_watch_end'), 'void', [])();
    if (observer !== null) observer.detach();
    for (const thread of watched.values()) {
      try {
        words.forEach((_, i) => thread.unsetHardwareWatchpoint(i));
      } catch {
        // It has ended.
      }
    }
    watched.clear();
  },
};
