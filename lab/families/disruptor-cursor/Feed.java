// SPDX-License-Identifier: MIT
import com.lmax.disruptor.BusySpinWaitStrategy;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.Sequence;
import com.lmax.disruptor.SequenceBarrier;
import com.lmax.disruptor.WaitStrategy;
import com.lmax.disruptor.YieldingWaitStrategy;

public final class Feed {
    static final class Event {
        long value;
    }

    public static void main(String[] args) throws Exception {
        WaitStrategy wait =
                args[0].equals("busy") ? new BusySpinWaitStrategy() : new YieldingWaitStrategy();
        RingBuffer<Event> ring = RingBuffer.createSingleProducer(Event::new, 64, wait);
        SequenceBarrier barrier = ring.newBarrier();
        Sequence own = new Sequence();
        ring.addGatingSequences(own);
        Thread publisher = new Thread(() -> publish(ring), "publisher");
        publisher.start();
        long sum = 0;
        for (long next = 0; next < 1000; next++) {
            barrier.waitFor(next);
            sum += ring.get(next).value;
            own.set(next);
        }
        Thread.sleep(300);
        // The cursor is a private field of the sequencer.
        java.lang.reflect.Field sequencer = ring.getClass().getSuperclass()
                .getDeclaredField("sequencer");
        sequencer.setAccessible(true);
        Object owner = sequencer.get(ring);
        java.lang.reflect.Field cursor = owner.getClass().getSuperclass().getSuperclass()
                .getSuperclass().getDeclaredField("cursor");
        cursor.setAccessible(true);
        Object alert = barrier;
        Class<?> value = Class.forName("com.lmax.disruptor.Value");
        Truth.field("cursor", cursor.get(owner), value, "value", 8);
        Truth.field("alert", alert, alert.getClass(), "alerted", 1);
        Truth.role("waiter");
        Truth.say("ready");
        barrier.waitFor(1000);
        System.out.println(sum);
        System.exit(0);
    }

    private static void publish(RingBuffer<Event> ring) {
        for (int number = 0; number < 1000; number++) {
            long next = ring.next();
            ring.get(next).value = number;
            ring.publish(next);
        }
        Truth.role("publisher");
        try {
            Thread.sleep(100_000_000);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
        ring.publish(ring.next());
    }
}
