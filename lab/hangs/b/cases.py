CASES={'b1':('exec ./b1',1),'b2':('exec ./b2',1),'b3':('exec ./b3',1),'b4':('exec ./b4',1),'b5':('exec ./b5',1),'b6':('exec ./b6',1),'b7':('exec python3 b7.py',0),'b8':('exec python3 b8.py',0),'b9':('exec ./b9',0),'b10':('exec bash b10.sh',0),'b11':('exec perl b11.pl',0),'b12':('exec ruby b12.rb',0),
'b13':('exec java -Xmx128m -XX:+UseSerialGC -cp j13 Held',0),'b14':('exec node b14.js',0)}
