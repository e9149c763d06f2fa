// SPDX-License-Identifier: MIT
// The agent of `flagfinder watch --backend frida`: sets watchpoints on every thread, and has the
// native half handle what traps. No JavaScript runs in a thread of the program.
'use strict';

const NAMES = [
  'gum_invocation_context_get_nth_argument',
  'gum_invocation_context_replace_nth_argument',
];

let api = null;
let words = [];
const watched = new Map();

function addressOf(name) {
  const bridge = new CModule(`extern void ${name} (void);
    void * find (void) { return (void *) ${name}; }`);
  return new NativeFunction(bridge.find, 'pointer', [])();
}

// The thread is made from its id alone: to enumerate threads, Frida stops each of them.
function watch(id) {
  const thread = new Thread(id);
  words.forEach(({ address, size, conditions }, i) => {
    thread.setHardwareWatchpoint(i, ptr(address), size, conditions);
  });
  watched.set(id, thread);
}

function serveNewborns() {
  if (api === null) return;
  const id = api.newborn();
  if (id !== 0) {
    try {
      watch(id);
    } catch (error) {
      send({ note: `thread ${id} is not watched: ${error.message}` });
    }
    api.mayLive(id);
  }
  setImmediate(serveNewborns);
}

rpc.exports = {
  // The program waits in the library's gate, on the one thread it has.
  start(path, ring, wanted, tid) {
    const library = Module.load(path);
    words = wanted;
    const functions = Memory.alloc(NAMES.length * Process.pointerSize);
    NAMES.forEach((name, i) => {
      functions.add(i * Process.pointerSize).writePointer(addressOf(name));
    });
    const libc = Process.getModuleByName('libc.so.6');
    const native = (name, result, args, options) =>
      new NativeFunction(library.getExportByName(name), result, args, options);
    const mask = library.getExportByName('ff_sigmask');
    Interceptor.replace(libc.getExportByName('pthread_sigmask'), mask);
    const begin = native('ff_watch', 'pointer', ['pointer', 'pointer']);
    const wrong = begin(Memory.allocUtf8String(ring), functions);
    if (!wrong.isNull()) throw new Error(wrong.readCString());
    const onEnter = library.getExportByName('ff_on_sigaction');
    Interceptor.attach(libc.getExportByName('sigaction'), { onEnter });
    api = {
      // It does not hold JavaScript's lock while it waits.
      newborn: native('ff_newborn', 'uint32', [], { scheduling: 'cooperative' }),
      mayLive: native('ff_may_live', 'void', ['uint32']),
      end: native('ff_watch_end', 'void', []),
    };
    if (words.length === 0) return;
    const create = libc.getExportByName('pthread_create');
    native('ff_created_by', 'void', ['pointer'])(create);
    Interceptor.replace(create, library.getExportByName('ff_create'));
    watch(tid);
    setImmediate(serveNewborns);
  },

  // The agent stays: what it replaced is in use.
  end() {
    const { end } = api;
    end();
    api = null;
    for (const thread of watched.values()) {
      try {
        words.forEach((_, i) => thread.unsetHardwareWatchpoint(i));
      } catch {
        // The thread has ended.
      }
    }
    watched.clear();
  },
};
