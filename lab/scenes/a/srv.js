const http=require('http');http.createServer((q,r)=>{const n=q.url==='/slow'?700:2;const e=Date.now()+n;while(Date.now()<e);r.end('x')}).listen(8931,'127.0.0.1',()=>console.log('up'));
