// SPDX-License-Identifier: MIT
import org.apache.commons.pool2.BasePooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import org.apache.commons.pool2.impl.GenericObjectPool;

/**
 * Accounts are guarded by a monitor, connections by a pool of one. {@code Ledger bad}: one takes
 * the monitor and then a connection, the other a connection and then the monitor.
 */
public class Ledger {
    static class Connection {
        private int statements;

        void execute(String statement) {
            statements++;
        }
    }

    static class Connections extends BasePooledObjectFactory<Connection> {
        @Override
        public Connection create() {
            return new Connection();
        }

        @Override
        public PooledObject<Connection> wrap(Connection one) {
            return new DefaultPooledObject<>(one);
        }
    }

    private final GenericObjectPool<Connection> pool;
    private long balance;

    Ledger() {
        pool = new GenericObjectPool<>(new Connections());
        pool.setMaxTotal(1);
    }

    synchronized void book(long amount) throws Exception {
        balance += amount;
        Thread.sleep(300);
        Connection connection = pool.borrowObject();
        try {
            connection.execute("insert " + amount);
        } finally {
            pool.returnObject(connection);
        }
    }

    synchronized long balance() {
        return balance;
    }

    void report() throws Exception {
        Connection connection = pool.borrowObject();
        try {
            Thread.sleep(100);
            connection.execute("report " + balance());
        } finally {
            pool.returnObject(connection);
        }
    }

    interface Job {
        void run() throws Exception;
    }

    static Thread start(String name, Job job) {
        Thread thread = new Thread(() -> {
            try {
                job.run();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, name);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        boolean bad = arguments.length > 0 && arguments[0].equals("bad");
        Ledger ledger = new Ledger();
        System.out.println("begins");
        Thread books = start("books", () -> ledger.book(10));
        if (!bad) {
            books.join();
        }
        Thread reports = start("reports", ledger::report);
        books.join();
        reports.join();
        Object idle = new Object();
        synchronized (idle) {
            idle.wait();
        }
    }
}
