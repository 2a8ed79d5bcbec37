import opscope, glob, re, collections
for i in range(1,46):
    try:
        p=opscope.load(f'/tmp/h42/att/out_{i}.opscope'); s=p.summary().row(0,named=True); print(i,'duration' if i%3==0 else 'steps',s['steps'], end='; ')
    except Exception as e: print(i,'ERR',str(e)[:100])
