J='java -Xmx128m -XX:+UseSerialGC -cp'
CASES={
'01':('exec ./01_counted',1),'02':('exec ./02_semleak',1),'03':('exec ./03_upgrade',1),'04':('exec ./04_poolnest',1),'05':('exec ./05_producer_threw',1),'06':('exec ./06_kept_sender',1),
'07':('exec crates/target/release/stages',1),'08':('exec crates/target/release/async_lock',1),'09':('exec crates/target/release/oneshot',1),
'10':('exec ./go1.bin',1),'10b':('exec ./go2.bin',1),
'11':(f'exec {J} j11 Latch',0),'12':(f'exec {J} j12 Upgrade',0),'13':(f'exec {J} j13 FullQueue',0),'14':(f'exec {J} j14 Nested',0),'32':(f'exec {J} j32 Chain',0),
'15':('exec python3 15_queue_full.py',1),'16':('exec python3 16_join_before_get.py',0),'17':('exec python3 17_pool_killed.py',0),'18':('exec python3 18_async_circle.py',0),
'19':('exec node 19_worker_gone.js',0),'20':('exec ruby 20_sized.rb',1),'21':('exec bash 21_lost_writer.sh',0),'22-pg':('exec bash 22_pg.sh',0),'23':('exec ./23_sysv',0),
'24':('exec bash 24_run.sh',0),'25':('exec ./25_mq',0),'26':('exec ./26_forked',0),'27':('exec perl 27_both_ways.pl',0),'28':('exec bash 28_redis.sh',0),'29':('exec ./29_retries',1),
'30':('exec ./30_never_started',1),'31':('exec python3 31_executor_exc.py',1)}
