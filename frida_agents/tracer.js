// The agent in the target: loads the native half and has Stalker follow threads. No code of this file runs in a followed thread.
'use strict';

// Declared here, not included: Gum's headers do not compile in every release, and these four never changed.
const NAMES = ['gum_stalker_iterator_next', 'gum_stalker_iterator_keep', 'gum_x86_writer_put_bytes', 'gum_x86_writer_cur'];
const COLLECT_EVERY_MS = 1000;
const FOLLOW_TURNS = 20;

let library = null;
let api = null;
let collected = Date.now();

function addressOf(name) {
  const bridge = new CModule(`extern void ${name} (void); void * find (void) { return (void *) ${name}; }`);
  return new NativeFunction(bridge.find, 'pointer', [])();
}

function load(path) {
  library = Module.load(path);
  const native = (name, result, args, options) =>
    new NativeFunction(library.getExportByName(name), result, args, options);
  api = {
    start: native('ff_start', 'pointer', ['pointer', 'pointer']),
    first: native('ff_first', 'pointer', ['uint32']),
    // Without the lock of JavaScript while it waits.
    arrival: native('ff_arrival', 'pointer', ['uint32', 'pointer'], { scheduling: 'cooperative' }),
    followed: native('ff_followed', 'void', ['pointer']),
    missed: native('ff_missed', 'void', ['pointer']),
    transform: library.getExportByName('ff_transform'),
  };
}

function follow(tid, data) {
  Stalker.follow(tid, { transform: api.transform, data });
}

// The thread waits for a while; what it is stopped for is not always to be had at once.
function followAtLast(tid, data) {
  for (let turn = 0; turn < FOLLOW_TURNS; turn++) {
    try {
      follow(tid, data);
      return true;
    } catch {
      Thread.sleep(0.01);
    }
  }
  return false;
}

const tidPlace = Memory.alloc(4);

function serveArrivals() {
  const data = api.arrival(20, tidPlace);
  if (!data.isNull()) {
    if (followAtLast(tidPlace.readU32(), data)) api.followed(data);
    else api.missed(data);
  }
  if (Date.now() - collected > COLLECT_EVERY_MS) {
    collected = Date.now();
    Stalker.garbageCollect();
  }
  setImmediate(serveArrivals);
}

rpc.exports = {
  // The program waits in the library's gate, on the one thread it has.
  start(path, pool, tid) {
    load(path);
    const functions = Memory.alloc(NAMES.length * Process.pointerSize);
    NAMES.forEach((name, i) => functions.add(i * Process.pointerSize).writePointer(addressOf(name)));
    const wrong = api.start(functions, Memory.allocUtf8String(pool));
    if (!wrong.isNull()) throw new Error(wrong.readCString());
    const data = api.first(tid);
    if (data.isNull()) throw new Error('there is no address space for its buffers');
    follow(tid, data);
    setImmediate(serveArrivals);
  },
};
